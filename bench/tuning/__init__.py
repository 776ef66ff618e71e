"""How good the choice of points is: drawn operators, many points of each measured alone, and what the tables and a
learned model would have taken of them.

`drawn` makes a kernel of each operator, `measure` measures its points, `regret` asks both, `report` writes it.
"""
