"""Searching for plans against the clock: sharders by name, in turn or in several processes."""
