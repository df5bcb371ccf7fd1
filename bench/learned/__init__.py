"""Learned lookups, as in the paper: networks trained on measured kernels, beside the roofline."""
