"""What a rule knows of the place of a call in the graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import relax

from backends.backend import LayoutPolicy
from fusion.bindings import call_name
from fusion.declined import Declined, Declines
from fusion.passes.layout.factored import Factored
from fusion.passes.layout.order import Order
from fusion.passes.layout.placed import Placed
from fusion.passes.layout.preferences import Preference


@dataclass(frozen=True)
class CallContext:
    """Where a call stands.

    Attributes:
        builder: Binds what a rule makes.
        policy: What an order costs.
        preference: In which order those that read the result want it; None where they do not care.
        result: The variable that the result is bound to.
        declines: Takes what was declined.
    """

    builder: relax.BlockBuilder
    policy: LayoutPolicy
    preference: Preference | None
    result: str
    declines: Declines

    def is_disliked(self, order: Order, shape: tuple[int, ...]) -> bool:
        """Return whether a result of `shape` would have to move behind this call if it were stored in `order`."""
        return self.preference is not None and not self.preference.is_met(order, shape)

    def note(self, call: relax.Call, what: str, reason: Declined) -> None:
        """Keep why `what` was declined for this call."""
        self.declines.add(call_name(call), self.result, what, str(reason))


Rule = Callable[[CallContext, relax.Call, list[Placed]], "Placed | Factored | list[Placed]"]
"""(context, call, its tensors) -> what holds the result(s). Raises `Declined` where it runs on row-major operands."""
