"""Lets every BlockBuilder end its blocks where an exception leaves a function that it builds.

TVM's own scope leaves the block open, and whoever destroys the builder later, perhaps the garbage collector in a quite
different call, has TVM print a warning to stderr. Ours, those of TVM's importers and users' own all leave through it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import tvm
from tvm.relax.block_builder import BlockBuilder, FunctionScope

_exit = FunctionScope.__exit__
_OPEN = "_open_blocks"
"""The attribute of a builder that counts its blocks: TVM has no way to ask, and takes 70 ms to say that there is none
left to end."""


def _exit_and_close(scope: FunctionScope, kind: Any, error: Any, trace: Any) -> None:
    ended = False
    try:
        _exit(scope, kind, error, trace)
        ended = kind is None
    finally:
        if not ended and not scope._bb._func_stack:
            with suppress(tvm.error.InternalError):  # the first error is the one to be told
                for _ in range(getattr(scope._bb, _OPEN, 0)):
                    scope._bb._end_block()


def _counting(change: Callable[[BlockBuilder], Any], opened: int) -> Callable[[BlockBuilder], Any]:
    """Return a method of builders that does `change`, which opens so many blocks."""

    def counting(builder: BlockBuilder) -> Any:
        try:
            return change(builder)
        finally:
            setattr(builder, _OPEN, getattr(builder, _OPEN, 0) + opened)

    return counting


def forget_builders() -> None:
    """Forget the functions that are being built, in a forked process in which the thread that builds them is not."""
    BlockBuilder._stack.clear()


def install() -> None:
    """Close builders from now on, in the whole process."""
    FunctionScope.__exit__ = _exit_and_close
    BlockBuilder._begin_dataflow_block = _counting(BlockBuilder._begin_dataflow_block, 1)
    BlockBuilder._begin_binding_block = _counting(BlockBuilder._begin_binding_block, 1)
    BlockBuilder._end_block = _counting(BlockBuilder._end_block, -1)
