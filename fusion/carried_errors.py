"""Errors that functions on the host raise while compiled code runs: TVM keeps their text only.

A run makes its calls in one thread, which finds the error again as it was raised.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

from fusion.errors import FusionError

REFUSE = "fusion.refuse"
"""What code calls where a check of data fails; `fusion.module.host_functions` registers it, and raises the error."""

_raised = threading.local()


def carried(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function`, whose FusionErrors `take_raised` returns."""

    @wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except FusionError as error:
            _raised.error = error
            raise

    return call


def take_raised() -> FusionError | None:
    """Return the error that a `carried` function raised in this thread since this was last asked."""
    error: FusionError | None = getattr(_raised, "error", None)
    _raised.error = None
    return error
