"""Lets every BlockBuilder end its blocks where an exception leaves a function that it builds.

TVM's own scope leaves the block open, and whoever destroys the builder later, perhaps the garbage collector in a quite
different call, has TVM print a warning to stderr. Ours, those of TVM's importers and users' own all leave through it.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm.relax.block_builder import BlockBuilder, FunctionScope

_exit = FunctionScope.__exit__


def _exit_and_close(scope: FunctionScope, kind: Any, error: Any, trace: Any) -> None:
    ended = False
    try:
        _exit(scope, kind, error, trace)
        ended = kind is None
    finally:
        if not ended and not scope._bb._func_stack:
            _end_blocks(scope._bb)


def _end_blocks(builder: BlockBuilder) -> None:
    while True:
        try:
            builder._end_block()
        except tvm.error.InternalError:  # there is none left: TVM has no way to ask
            return


def forget_builders() -> None:
    """Forget the functions that are being built, in a forked process in which the thread that builds them is not."""
    BlockBuilder._stack.clear()


def install() -> None:
    """Close builders from now on, in the whole process."""
    FunctionScope.__exit__ = _exit_and_close
