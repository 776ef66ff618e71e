"""Rewrites PrimFuncs made of blocks so that they write, or read, a slice of a larger tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Range, TensorLoad, TensorRegion, Var
from tvm.s_tir.stmt import SBlock, SBlockRealize
from tvm_ffi.structural import StructuralMutator

from fusion.shapes import static_shape
from fusion.structural import mutate
from partition.recurrence import recurrence_of

Expr = Any

CONCAT = "fusion.concat"
"""Attribute of a PrimFunc that concatenates its parameters, along the axis that is its value, into the last one."""

_BLOCK = "concat"


@dataclass(frozen=True)
class Slice:
    """The position of a tensor within a larger one of the same rank.

    Attributes:
        shape: The shape of the larger tensor.
        offsets: The index of the tensor's first element in it.
    """

    shape: tuple[int, ...]
    offsets: tuple[int, ...]

    def inside(self, outer: Slice) -> Slice:
        """Return the position of this tensor within that which holds the larger one, at `outer`."""
        offsets = tuple(a + b for a, b in zip(self.offsets, outer.offsets, strict=True))
        return Slice(outer.shape, offsets)


def has_blocks(func: tirx.PrimFunc) -> bool:
    """Return whether `func` is a sequence of blocks that can be made to write or read a slice. A recurrence is not: its
    attribute describes its parameters as they are."""
    if recurrence_of(func) is not None:
        return False
    return isinstance(func.body, SBlockRealize) and bool(func.params) and not func.body.block.iter_vars


def write_slice(func: tirx.PrimFunc, made: Var, part: Sequence[int], place: Slice) -> tirx.PrimFunc:
    """Return `func` with one more parameter, the last, to which it also writes the buffer `made`, reshaped to `part`,
    at `place`.

    ```
    for i, j in T.grid(*part):
        with T.sblock("concat"):
            joined[i + 0, j + 64] = made[i, j]
    ```
    """
    joined = tirx.decl_buffer(_shape(place), made.ty.dtype, "joined")
    axes = [Var(f"v{axis}", "int64") for axis in range(len(part))]
    source = _reshaped(axes, part, static_shape(made))
    target = _moved(axes, place.offsets)
    store = tirx.BufferStore(joined, tirx.BufferLoad(made, source), target)
    block = SBlock(
        [tirx.IterVar(_range(0, extent), var, tirx.IterVar.DataPar) for var, extent in zip(axes, part, strict=True)],
        [tirx.BufferRegion(made, [Range.from_min_extent(index, _int(1)) for index in source])],
        [tirx.BufferRegion(joined, [Range.from_min_extent(index, _int(1)) for index in target])],
        _BLOCK, store,
    )  # fmt: skip
    loops = [Var(f"i{axis}", "int64") for axis in range(len(part))]
    nest: tirx.Stmt = SBlockRealize(loops, True, block)
    for var, extent in zip(reversed(loops), reversed(part), strict=True):
        nest = tirx.For(var, _int(0), _int(extent), tirx.ForKind.SERIAL, nest)
    root = func.body.block
    stages = list(root.body.seq) if isinstance(root.body, tirx.SeqStmt) else [root.body]
    body = _with_root(func, tirx.SeqStmt([*stages, nest]), list(root.alloc_buffers))
    return tirx.PrimFunc([*func.params, joined], body, func.ret_type, func.attrs)


def hide_outputs(func: tirx.PrimFunc, hidden: Sequence[Var]) -> tirx.PrimFunc:
    """Return `func` with the outputs `hidden` as buffers of its own in place of parameters."""
    root = func.body.block
    params = [param for param in func.params if not any(param.same_as(buffer) for buffer in hidden)]
    body = _with_root(func, root.body, [*root.alloc_buffers, *hidden])
    return tirx.PrimFunc(params, body, func.ret_type, func.attrs)


def with_parameters(func: tirx.PrimFunc, params: Sequence[Var]) -> tirx.PrimFunc:
    """Return `func` with its parameters in the order of `params`."""
    return tirx.PrimFunc(list(params), func.body, func.ret_type, func.attrs)


def read_slice(func: tirx.PrimFunc, position: int, place: Slice) -> tirx.PrimFunc:
    """Return `func` with its input at `position` replaced by a larger tensor, of which it reads the slice at
    `place`."""
    old = func.params[position]
    new = tirx.decl_buffer(_shape(place), old.ty.dtype, old.name)

    def load(found: TensorLoad, mutator: StructuralMutator) -> Expr:
        mutated = mutator.default_mutate(found)
        return tirx.BufferLoad(new, _moved(mutated.indices, place.offsets)) if mutated.source.same_as(old) else mutated

    def read(found: TensorRegion, mutator: StructuralMutator) -> Expr:
        if not found.source.same_as(old):
            return mutator.default_mutate(found)
        starts = _moved([part.min for part in found.region], place.offsets)
        extents = [part.extent for part in found.region]
        ranges = [Range.from_min_extent(start, extent) for start, extent in zip(starts, extents, strict=True)]
        return tirx.BufferRegion(new, ranges)

    params = [new if index == position else param for index, param in enumerate(func.params)]
    body = mutate(func.body, [(TensorLoad, load), (TensorRegion, read)])
    return tirx.PrimFunc(params, body, func.ret_type, func.attrs)


def copy_function(part: Sequence[int], dtype: str, place: Slice) -> tirx.PrimFunc:
    """Return a kernel of two parameters that copies a tensor of shape `part` to `place` in the second."""
    source = tirx.decl_buffer([_int(extent) for extent in part], dtype, "part")
    root = SBlock([], [], [], "root", tirx.Evaluate(_int(0)))
    empty = tirx.PrimFunc([source], SBlockRealize([], True, root)).with_attrs({"tirx.noalias": True, "s_tir": True})
    func = write_slice(empty, source, part, place)
    nest = func.body.block.body.seq[-1]
    return func.with_body(_with_root(func, nest, []))


def _with_root(func: tirx.PrimFunc, body: tirx.Stmt, buffers: Sequence[Var]) -> tirx.Stmt:
    old = func.body.block
    root = SBlock([], old.reads, old.writes, old.name_hint, body, None, list(buffers), [], old.annotations)
    return SBlockRealize([], True, root)


def _reshaped(indices: Sequence[Expr], shape: Sequence[int], source: Sequence[int]) -> list[Expr]:
    """Return the index in a tensor of shape `source` of the element at `indices` of its reshape to `shape`."""
    if tuple(shape) == tuple(source):
        return list(indices)
    flat: Expr = _int(0)
    for index, extent in zip(indices, shape, strict=True):
        flat = flat * extent + index
    found: list[Expr] = []
    for extent in reversed(source):
        found.insert(0, tirx.floormod(flat, _int(extent)))
        flat = tirx.floordiv(flat, _int(extent))
    return found


def _moved(indices: Sequence[Expr], offsets: Sequence[int]) -> list[Expr]:
    return [index + _int(offset) if offset else index for index, offset in zip(indices, offsets, strict=True)]


def _range(begin: int, extent: int) -> Range:
    return Range.from_min_extent(_int(begin), _int(extent))


def _int(value: int) -> Expr:
    return tirx.const(value, "int64")


def _shape(place: Slice) -> list[Expr]:
    return [_int(extent) for extent in place.shape]
