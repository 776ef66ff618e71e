"""Chooses among forms of kernels by measuring them, for `effort="balanced"`.

`candidates` -> `build` (both CPUs) -> `experiment`, as files -> `worker`, a process that runs the network in each form
-> `rounds` of times -> `decide`. `points` does it for the points of templates' spaces, `chains` for kernels with two
anchors.
"""
