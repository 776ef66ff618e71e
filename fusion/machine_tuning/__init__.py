"""`fusion tune --machine`: drawn operators, their kernels measured alone, and what is learned of that.

`drawn` makes a kernel of each operator, `measure` measures points of it, `tune` does both for as long as it may.
"""
