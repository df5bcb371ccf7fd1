"""Traces of profilers and execution traces: read, replayed, predicted from, and written."""
