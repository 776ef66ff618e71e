"""Plain loops for what no other family takes."""

from __future__ import annotations

from backends.cpu.kernels.fallback_loops.emit import FALLBACK_LOOPS, emit_plain
from backends.cpu.kernels.fallback_loops.plan import PlainLoops, plain_space
from backends.cpu.kernels.template import Template

TEMPLATE = Template(
    name=FALLBACK_LOOPS,
    read=lambda func: func,
    space=plain_space,
    emit=emit_plain,
    emit_open=lambda func, machine, threads: emit_plain(func, func, machine, PlainLoops(threads)),
)
