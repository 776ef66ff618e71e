"""Leaves out what a module returns and torch cannot export: objects of unknown classes, such as caches."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from fusion.frontends.torch.signature import leaves, left_out


@dataclass(frozen=True)
class Reduced:
    """A module that returns None in their place.

    Attributes:
        module: Takes what the other takes.
        notes: What is left out.
    """

    module: Any
    notes: tuple[str, ...]


def without_unknown_outputs(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Reduced | None:
    """Return `module` without those of its results that torch cannot export, None where it has none or does not run."""
    import torch

    try:
        flat, spec = torch.utils._pytree.tree_flatten(module(*args, **kwargs))
    except Exception:  # whatever the module's own code raises
        return None
    paths = [path for path, _ in leaves(spec)]
    unknown = [("_".join(path) or "output", value) for path, value in zip(paths, flat, strict=True) if _foreign(value)]
    if not unknown or len(unknown) == len(flat):
        return None

    class Known(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            values, spec = torch.utils._pytree.tree_flatten(self.module(*args, **kwargs))
            return torch.utils._pytree.tree_unflatten([None if _foreign(value) else value for value in values], spec)

    known = Known()
    # Inputs have the names of the parameters.
    Known.forward.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
         *inspect.signature(module.forward).parameters.values()]
    )  # fmt: skip
    return Reduced(known.eval(), tuple(left_out(name, type(value).__name__) for name, value in unknown))


def _foreign(value: Any) -> bool:
    import torch

    return not isinstance(value, (torch.Tensor, int, float, complex, str, type(None), torch.SymInt, torch.SymFloat))
