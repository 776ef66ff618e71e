"""Two convolutions of which the second reads what the first makes."""
