"""How far off predicted step times may be: intervals, and odds between plans."""
