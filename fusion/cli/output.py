"""Prints results: text for people, JSON for scripts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fusion.signature import TensorSpec


def show(text: str, data: dict[str, Any], as_json: bool) -> None:
    """Print `data` as JSON if asked to, otherwise `text`, on stdout."""
    print(json.dumps(data, indent=2) if as_json else text)


def signature(specs: Sequence[TensorSpec]) -> list[dict[str, Any]]:
    """Return inputs or outputs as plain data."""
    return [{"name": s.name, "shape": None if s.shape is None else list(s.shape), "dtype": s.dtype} for s in specs]
