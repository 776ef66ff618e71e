"""The one way to decline: raise `Declined` with the reason, which is logged for `explain()`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tvm_ffi import register_error

_NAMED = 4
"""How many values a note names before it counts the others."""


@register_error  # unregistered, one raised in a `structural_map` came out of it as a RuntimeError
class Declined(Exception):
    """Raised by a converter, a rewrite, a layout rule, a lowering or a template that is meant for what it was given but
    does not support it. The text says why, as the end of a sentence. Something else takes over: ONNX Runtime runs the
    node, TVM's form the call, plain loops the kernel. If nothing does, as for Relay's operators, an error has the
    reason.

    Something for which it is not meant at all is no case of declining: patterns, marks and `concerns` say so before.
    """


@dataclass
class Declines:
    """A log of what was declined while a graph was compiled.

    Attributes:
        values: (operator, what was declined, reason) -> the names of the values for which it was.
    """

    values: dict[tuple[str, str, str], list[str]] = field(default_factory=dict)

    def add(self, operator: str, value: str, what: str, reason: str) -> None:
        """Note that `what` was declined for the `operator` that computes `value`."""
        self.values.setdefault((operator.removeprefix("relax."), what, reason), []).append(value)

    def notes(self, origins: Mapping[str, str] = MappingProxyType({})) -> list[str]:
        """Return a sentence for each operator, declined thing and reason.

        Args:
            origins: Name of a value -> the operator of the model that it is from, if it is known.
        """
        return [
            f"{operator} of {_listed([origins.get(value, repr(value)) for value in values])}: {what}: {reason}"
            for (operator, what, reason), values in self.values.items()
        ]


def _listed(places: list[str]) -> str:
    distinct = list(dict.fromkeys(places))
    more = len(distinct) - _NAMED
    return ", ".join(distinct[:_NAMED]) + (f" and {more} more" if more > 0 else "")
