"""Stands for a model compiled for a machine of another kind, which can be saved and not run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from fusion.errors import TargetError


class ForeignProgram:
    """Refuses to run."""

    def __init__(self, reason: TargetError) -> None:
        """`reason` is what a run raises."""
        self._reason = reason

    def run(self, arrays: Sequence[Any]) -> NoReturn:
        """Raise a TargetError: this machine cannot run the code."""
        raise self._reason.with_traceback(None)
