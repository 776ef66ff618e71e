"""Covers of random graphs: the search against trying all, and how long it takes."""
