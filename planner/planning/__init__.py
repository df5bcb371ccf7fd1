"""Plans: searched, compared with a baseline, explained, and shown."""
