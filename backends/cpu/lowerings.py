"""The operators that have kernels of their own, and what writes each as a TensorIR call with packed weights."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from tvm import relax

from backends.backend import Lowering
from backends.cpu.kernels import priority
from backends.cpu.kernels.template import Lower


@dataclass(frozen=True)
class _WithLanes:
    """A lowering for panels of weights as wide as a vector."""

    lower: Lower
    lanes: int

    def __call__(self, builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
        return self.lower(builder, call, self.lanes)


def lowerings(lanes: int) -> dict[str, tuple[Lowering, ...]]:
    """Return the lowerings of all templates by operator, in their order, for vectors of so many float32 `lanes`."""
    found = defaultdict(list)
    for template in priority.TEMPLATES:
        for operator, lower in template.lowerings.items():
            found[operator].append(Lowering(lower.__name__, _WithLanes(lower, lanes)))
    return {operator: tuple(tried) for operator, tried in found.items()}
