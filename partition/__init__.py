"""Partitions a graph of TensorIR calls into groups, each of which becomes one kernel.

`form_groups.py` is the pass; the other files are its parts.
"""
