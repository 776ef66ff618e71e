"""Runs operators, with what follows them elementwise, as primitives of oneDNN."""
