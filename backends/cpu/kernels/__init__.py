"""The kernel families of the CPU, a folder each: `lower.py`, `read.py`, `plan.py` and `emit.py`, in this order.

`priority.py` lists the families; `template.py` says what a family has to provide.
"""
