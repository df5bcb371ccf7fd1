"""Bytes that every rank needs under a plan."""
