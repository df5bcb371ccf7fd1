"""Trains small models with TorchRec, and holds each step against the synthesized one."""
