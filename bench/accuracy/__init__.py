"""How far off every model is, on measurements it was not fitted to."""
