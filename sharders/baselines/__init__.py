"""Searches of other planners, to compare with; ``auto`` runs none of them."""
