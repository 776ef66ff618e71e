"""Reserved for the search of kernel parameters by measurement; nothing is here yet.

Until then the templates of `backends` take their tiles from cost tables, and `effort` has "fast" as its only value.
"""
