"""Functions on the device that kernels call by name: their text, and calls of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tvm import tirx
from tvm.ir import StringImm

from backends.tensorir.emit import Expr, Nest

INSTRUCTIONS = Path(__file__).with_name("instructions.cuh").read_text()
"""CUDA C that stands before each kernel."""


def call_device(nest: Nest, name: str, *arguments: Any) -> None:
    """Add a call of one of these functions."""
    nest.add(tirx.Evaluate(tirx.call_extern("void", name, *arguments)))


def barrier(nest: Nest) -> None:
    """Add a point that all threads of a block reach before one goes on."""
    nest.add(tirx.Evaluate(tirx.call_intrin("int32", "tirx.tvm_storage_sync", StringImm("shared"))))


def registers(buffer: Any, at: int) -> tuple[Any, Expr]:
    """Return a thread's numbers as these functions take them, from one on: TVM drops what no argument names."""
    return buffer, tirx.const(at, "int32")


def address(buffer: Any, position: Expr) -> Expr:
    """Return where an element is, by its position in a buffer of one dimension."""
    return tirx.address_of(tirx.BufferLoad(buffer, [position]))
