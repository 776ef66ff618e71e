"""Whole graphs, made at random."""
