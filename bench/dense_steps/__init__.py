"""Holds predicted training steps of models of others against measured ones."""
