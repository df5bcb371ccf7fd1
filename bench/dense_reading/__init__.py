"""Reads the dense parts of models that others wrote, beside what torch counts."""
