"""Shows that what is read of the five models' dense parts is right, and what it changes."""
