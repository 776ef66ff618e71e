"""`fusion tune --machine`: measures kernels of randomly drawn operators, and learns a cost model of the machine.

`drawn` makes kernels of operators, `measure` measures points of them, `tune` does both within a budget.
"""
