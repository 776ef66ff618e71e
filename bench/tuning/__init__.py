"""How good the choice of points is: drawn operators, many points of each measured alone, and what the tables and a
learned model would have taken of them.

`measure` measures points of drawn kernels, `regret` asks both, `report` writes it.
"""
