"""Chooses the fastest candidate for each kernel by measuring it within the network, for `effort="balanced"` and "max".

`candidates` are compiled by `build`, written to files as an `experiment`, and run by `worker`, a process that exchanges
`messages` with `measuring_session`. It times them in interleaved `rounds`, and `decide` picks one. `points` does all
this for the points of schedule spaces, `chains` for kernels with several anchors; `job` is the search over rounds of
points.
"""
