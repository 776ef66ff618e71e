"""The one way to decline: who does not take what it was given raises the reason, and a log keeps it for `explain()`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tvm_ffi import register_error

_NAMED = 4
"""Places of which one thing is said that are named."""


@register_error  # unregistered, one raised in a `structural_map` came out of it as a RuntimeError
class Declined(Exception):
    """Raised by a converter, a rewrite, a layout rule, a lowering or a template that could take what it was given and
    does not; the text says why, as the end of a sentence. Somebody else takes it then: ONNX Runtime a node, TVM a call,
    plain loops a kernel; where nobody does, as with Relay's operators, an error has the reason.

    What has another form than the one that somebody takes is not his to decline: patterns, marks and `concerns` tell.
    """


@dataclass
class Declines:
    """What was declined while a graph was compiled.

    Attributes:
        values: The values that one thing is said of, by operator, what was not done with it, and why.
    """

    values: dict[tuple[str, str, str], list[str]] = field(default_factory=dict)

    def add(self, operator: str, value: str, what: str, reason: str) -> None:
        """Note that `what` was declined for the `operator` that makes a `value`."""
        self.values.setdefault((operator.removeprefix("relax."), what, reason), []).append(value)

    def notes(self, origins: Mapping[str, str] = MappingProxyType({})) -> list[str]:
        """Return a sentence for each operator, what was declined and the reason.

        Args:
            origins: The operators of the model that values are of, where they are known.
        """
        return [
            f"{operator} of {_listed([origins.get(value, repr(value)) for value in values])}: {what}: {reason}"
            for (operator, what, reason), values in self.values.items()
        ]


def _listed(places: list[str]) -> str:
    distinct = list(dict.fromkeys(places))
    more = len(distinct) - _NAMED
    return ", ".join(distinct[:_NAMED]) + (f" and {more} more" if more > 0 else "")
