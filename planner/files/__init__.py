"""Reading and writing: the outside world as text, turned into domain objects and back."""
