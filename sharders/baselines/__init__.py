"""Peers' ways to search, to compare with: ``auto`` runs none of them."""
