"""Models with an open batch: every batch from one module, right by the float64 gate, and timed against other engines.

`images` makes batches of a few images that are evaluated in float64 alone, `measure` runs the batches of one model,
`result` is what was found, `report` writes it.
"""
