"""How long the partition takes as graphs grow: `python -m bench.partition` writes a table and a plot.

`shapes` makes the graphs, `growth` times `FormGroups` over them, `report` writes what was found.
"""
