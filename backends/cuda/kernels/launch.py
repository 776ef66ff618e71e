"""The loops over the blocks of a grid and the threads of a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

from tvm import tirx
from tvm.ir import Range, Var
from tvm.tirx import ForKind

from backends.cuda.codegen.generate import BLOCKS_OF_SM
from backends.tensorir.emit import Nest, int64
from backends.tensorir.stages import shape_of
from fusion.declined import Declined

MOST_ELEMENTS = 2**31 - 1
"""Of a buffer, or that a kernel counts: indices are int32."""


def check_sizes(*buffers: Var) -> None:
    """Check that an int32 counts the elements of each tensor.

    Raises:
        Declined: Not those of one.
    """
    for buffer in buffers:
        elements = prod(shape_of(buffer))
        if elements > MOST_ELEMENTS:
            raise Declined(f"{buffer.name} has {elements:,} elements, more than an int32 counts")


@contextmanager
def bound_loop(nest: Nest, tag: str, extent: int, blocks_of_sm: int | None = None) -> Iterator[Var]:
    """Open a loop of which each iteration is a block or a thread, as `tag` says: "blockIdx.x" or "threadIdx.x".

    Args:
        blocks_of_sm: Of a loop over blocks, as many as an SM is to hold at once.
    """
    var = Var(tag.partition(".")[0], "int64")
    with nest.apart() as body:
        yield var
    binding = tirx.IterVar(Range(int64(0), int64(extent)), Var(tag, "int64"), tirx.IterVar.ThreadIndex, tag)
    statement = tirx.SeqStmt(body) if len(body) > 1 else body[0]
    said = {BLOCKS_OF_SM: blocks_of_sm} if blocks_of_sm else {}
    nest.add(tirx.For(var, int64(0), int64(extent), ForKind.THREAD_BINDING, statement, binding, said))
