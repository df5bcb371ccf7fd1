"""What the user sees: reports as plain data, as text, and as JSON."""
