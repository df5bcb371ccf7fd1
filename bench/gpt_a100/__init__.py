"""Holds GPT models on A100 under data and tensor parallelism against measured steps."""
