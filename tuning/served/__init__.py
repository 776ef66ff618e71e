"""Measures on servers of TVM RPC that a tracker knows, beside building here.

`tracker` names servers, `worker` is a process for each, which sends machine code and `plan`, the bytes of an
experiment, through a `connection` to a server, where `measure.c` runs it. `session` is that process as seen from here,
`pool` all of one kind of CPU, and `job` builds what they measure next meanwhile.
"""
