"""Units, errors that a user can cause, and upper bounds of what models and machines can be."""
