"""Trains small models with TorchRec on CPU ranks, and holds each step against the synthesized one."""
