"""Reads a fused PrimFunc: which block is the anchor, and what the others compute from its result.

Blocks after the anchor are its epilogue. They are composed into one expression per output buffer, over the
coordinates of the anchor's result, so that a template can apply them to values that are still in registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Range, TensorLoad, Var
from tvm.s_tir.stmt import SBlock
from tvm.sym import Analyzer
from tvm_ffi.structural import structural_equal

from backends.tensorir.accesses import flat_index
from backends.tensorir.emit import Expr
from backends.tensorir.extents import Extent
from backends.tensorir.inlining import uses
from backends.tensorir.stages import Stage, dims_of, dtype_of, read_stages, substitute
from fusion.declined import Declined
from fusion.structural import map_nodes
from partition.access import ANCHOR, find_anchors


@dataclass(frozen=True)
class Output:
    """An output of the kernel, `buffer[indices] = value`, as a function of the `coordinates` of an element of the
    anchor's result and its value, `accumulator`."""

    buffer: Var
    coordinates: tuple[Var, ...]
    accumulator: Var
    indices: tuple[Expr, ...]
    value: Expr

    def at(self, coordinates: Sequence[Expr], accumulator: Expr) -> tuple[list[Expr], Expr]:
        """Return the indices and the value of the store for one element of the anchor's result."""
        indices = [tirx.const(index, "int64") if isinstance(index, int) else index for index in coordinates]
        known = {**dict(zip(self.coordinates, indices, strict=True)), self.accumulator: accumulator}
        return [substitute(index, known) for index in self.indices], substitute(self.value, known)


@dataclass(frozen=True)
class Roles:
    """The parts of an anchored PrimFunc.

    Attributes:
        kind: The kind of anchor, such as "conv2d".
        attrs: The annotations of the anchor, as its lowering wrote them.
        operands: The buffers that the anchor reads, in the order of its reads.
        shape: The shape of the anchor's result.
        outputs: The outputs that are stored for each element of it.
    """

    kind: str
    attrs: Mapping[str, Any]
    operands: tuple[Var, ...]
    shape: tuple[Extent, ...]
    outputs: tuple[Output, ...]


def read_roles(func: tirx.PrimFunc) -> Roles:
    """Return the roles of the blocks of `func`.

    Raises:
        Declined: There is no anchor, or a block behind it is not elementwise in its result.
    """
    anchor = find_anchor(func)
    if anchor is None:
        raise Declined("no anchor")
    result = result_of(anchor)
    behind = [stage for stage in read_stages(func) if not stage.buffer.same_as(result)]
    producers = {stage.buffer for stage in behind}
    written = [buffer for buffer in func.params if buffer in producers or buffer.same_as(result)]
    roles = roles_of(anchor, compose(result, behind, written))
    if any(operand in producers for operand in roles.operands):
        raise Declined("the anchor reads a value made inside the kernel")
    return roles


def roles_of(anchor: SBlock, outputs: tuple[Output, ...]) -> Roles:
    """Return the roles of a kernel with this anchor and these outputs."""
    attrs = {str(key): value for key, value in anchor.annotations.items()}
    return Roles(anchor_of(anchor), attrs, operands_of(anchor), dims_of(result_of(anchor)), outputs)


def anchor_of(block: SBlock) -> str:
    """Return the kind of anchor that a block is; "" if it is none."""
    return str(block.annotations.get(ANCHOR, ""))


def result_of(block: SBlock) -> Var:
    """Return the buffer that a block writes."""
    return block.writes[0].source


def operands_of(block: SBlock) -> tuple[Var, ...]:
    """Return the buffers that a reduction reads, its own result left out."""
    return tuple(region.source for region in block.reads if not region.source.same_as(result_of(block)))


def compose(result: Var, behind: Sequence[Stage], buffers: Sequence[Var]) -> tuple[Output, ...]:
    """Return how each of `buffers`, which `behind` computes from an anchor's `result`, follows from one element of it.

    Raises:
        Declined: A stage is not elementwise in the result.
    """
    coordinates = tuple(Var(f"c{axis}", "int64") for axis in range(len(dims_of(result))))
    composer = _Composer(result, {stage.buffer: stage for stage in behind}, coordinates)
    return tuple(composer.output(buffer) for buffer in buffers)


def find_anchor(func: tirx.PrimFunc) -> SBlock | None:
    """Return the block that carries an anchor annotation, if exactly one does."""
    found = find_anchors(func)
    return found[0] if len(found) == 1 else None


@dataclass(frozen=True)
class _Composer:
    """Inlines the epilogue blocks into one another, back to the anchor's result."""

    result: Var
    producers: Mapping[Var, Stage]
    coordinates: tuple[Var, ...]

    def output(self, buffer: Var) -> Output:
        """Return how `buffer` follows from the anchor's result."""
        stage = self.producers.get(buffer)
        shape = dims_of(buffer) if stage is None else tuple(axis.extent for axis in stage.spatial)
        at = tuple(Var(f"o{axis}", "int64") for axis in range(len(shape)))
        accumulator = Var("accumulator", dtype_of(self.result))
        reads: list[tuple[Expr, ...]] = []
        value = self._load(buffer, at, accumulator, reads)
        if not reads:
            raise Declined(f"{buffer.name} does not depend on the anchor")
        if any(not _same(reads[0], other) for other in reads[1:]):
            raise Declined("the anchor's result is read at two places")
        indices = _invert(at, shape, reads[0], self.coordinates)
        composed = substitute(value, dict(zip(at, indices, strict=True)))
        indices = indices if stage is None else stage.stored_at(indices)
        return Output(buffer, self.coordinates, accumulator, *self._flattened(buffer, indices, composed))

    def _flattened(self, buffer: Var, indices: list[Expr], value: Expr) -> tuple[tuple[Expr, ...], Expr]:
        """Write an access through a reshape as one position in memory: neighbours along the last coordinate are lanes
        of a vector, and (c // 7) * 7 + c % 7 is none of a vector c to TVM."""
        analyzer, last = Analyzer(), self.coordinates[-1]
        for var, extent in zip(self.coordinates, dims_of(self.result), strict=True):
            analyzer.bind(var, Range(0, extent))

        def flat(source: Var, given: Sequence[Expr]) -> tuple[Expr, ...]:
            if not any(uses(index, last) and not index.same_as(last) for index in given):
                return tuple(given)
            zeros = [tirx.const(0, "int64")] * (len(given) - 1)
            return (*zeros, flat_index(dims_of(source), given, analyzer))

        def rule(load: TensorLoad) -> Expr:
            return tirx.BufferLoad(load.source, list(flat(load.source, load.indices)))

        return flat(buffer, indices), map_nodes(value, (TensorLoad, rule))

    def _load(self, buffer: Var, at: Sequence[Expr], accumulator: Var, reads: list[tuple[Expr, ...]]) -> Expr:
        """Return the value of `buffer[at]` over parameters and the accumulator."""
        if buffer.same_as(self.result):
            reads.append(tuple(at))
            return accumulator
        stage = self.producers.get(buffer)
        if stage is None:
            return tirx.BufferLoad(buffer, list(at))
        if stage.reduce:
            raise Declined(f"{buffer.name} is reduced")
        value = substitute(stage.value, dict(zip((axis.var for axis in stage.spatial), at, strict=True)))
        load = (TensorLoad, lambda load: self._load(load.source, list(load.indices), accumulator, reads))
        return map_nodes(value, load)


def _same(first: Sequence[Expr], second: Sequence[Expr]) -> bool:
    return len(first) == len(second) and all(map(structural_equal, first, second))


def _invert(at: Sequence[Var], shape: Sequence[int], read: Sequence[Expr], coordinates: Sequence[Var]) -> list[Expr]:
    """Return the indices of an output, which reads the anchor at `read` for each index `at`, as a map of the
    anchor's coordinates."""
    analyzer = Analyzer()
    for var, extent in zip(at, shape, strict=True):
        analyzer.bind(var, Range(0, extent))
    simple = [analyzer.simplify(index) for index in read]
    if _same(simple, at):
        return list(coordinates)
    try:
        inverse = tirx.IndexMap(list(at), simple, None).inverse(list(shape))
    except Exception as error:  # TVM raises its plain InternalError for a map that is not bijective
        raise Declined("an epilogue block is no permutation of the anchor's result") from error
    return list(inverse.map_indices(list(coordinates)))
