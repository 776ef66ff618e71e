"""Stages without an anchor, stitched into tiles: elementwise work, reductions, transposes, pools, gathers."""
