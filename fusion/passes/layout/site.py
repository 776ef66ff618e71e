"""What a rule knows of the place of a call in the graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import relax

from backends.backend import LayoutPolicy
from fusion.passes.layout.factored import Factored
from fusion.passes.layout.order import Order
from fusion.passes.layout.placed import Placed
from fusion.passes.layout.wishes import Wish


@dataclass(frozen=True)
class Site:
    """Where a call stands.

    Attributes:
        builder: Binds what a rule makes.
        policy: What an order costs.
        wish: In which order those that read the result want it; None where they do not care.
    """

    builder: relax.BlockBuilder
    policy: LayoutPolicy
    wish: Wish | None

    def is_unwanted(self, order: Order, shape: tuple[int, ...]) -> bool:
        """Return whether a result of `shape` would have to move behind this call if it were stored in `order`."""
        return self.wish is not None and not self.wish.is_met(order, shape)


Rule = Callable[[Site, relax.Call, list[Placed]], "Placed | Factored | list[Placed] | None"]
"""(site, call, its tensors) -> what holds the result(s); None where it runs on row-major operands."""
