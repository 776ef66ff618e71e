"""Chooses among candidates for each kernel by measuring them, for `effort="balanced"`.

`candidates` -> `build` (both CPUs) -> `experiment`, as files -> `worker`, a process that runs the network with each
candidate and exchanges `messages` with `measuring_session` -> `rounds` of times -> `decide`. `points` does it for the
points of templates' spaces, `chains` for kernels with several anchors.
"""
