"""What plans and reports look like: text, JSON and pages, as functions of the data."""
