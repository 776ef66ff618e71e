"""The operators that have kernels of their own, and what writes each as a TensorIR call with packed weights."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from tvm import relax

from backends.backend import Lowering
from backends.cpu.kernels import priority
from backends.cpu.kernels.shared.lowering.operands import has_known_shapes
from backends.cpu.kernels.template import Lower
from fusion.declined import Declined


@dataclass(frozen=True)
class _WithLanes:
    """A lowering of a template, for panels of weights as wide as a vector.

    Attributes:
        name: That of the template.
    """

    name: str
    lower: Lower
    lanes: int

    def concerns(self, builder: relax.BlockBuilder, call: relax.Call) -> bool:
        """Return whether `call` has the form that the family computes, or its shapes do not tell."""
        return not has_known_shapes(call) or self.lower.concerns(builder, call, self.lanes)

    def apply(self, builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        """Return `call` as TensorIR.

        Raises:
            Declined: It is not one of the family's.
        """
        if not has_known_shapes(call):
            raise Declined("only the run knows a shape of it")
        return self.lower.write(builder, call, self.lanes)


def lowerings(lanes: int) -> dict[str, tuple[Lowering, ...]]:
    """Return the lowerings of all templates by operator, in their order, for vectors of so many float32 `lanes`."""
    found = defaultdict(list)
    for template in priority.TEMPLATES:
        for operator, lower in template.lowerings.items():
            found[operator].append(_WithLanes(template.name, lower, lanes))
    return {operator: tuple(tried) for operator, tried in found.items()}
