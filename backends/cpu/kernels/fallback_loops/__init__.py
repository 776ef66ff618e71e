"""Plain loops for what no other family takes."""

from __future__ import annotations

from backends.cpu.kernels.fallback_loops.emit import FALLBACK_LOOPS, emit_plain
from backends.cpu.kernels.fallback_loops.plan import plain_space
from backends.cpu.kernels.template import Template

TEMPLATE = Template(FALLBACK_LOOPS, lambda func: func, plain_space, emit_plain)
