"""Reads a kernel around one sum of products: which axes are its rows, columns and depth, and what is behind it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad, Var

from backends.cuda.kernels.affine import analyzer_over, step_of
from backends.cuda.kernels.device_arithmetic import dtype_of_value
from backends.cuda.kernels.inlined import inlined
from backends.cuda.kernels.launch import check_sizes
from backends.cuda.kernels.matmul.operand import MatrixOperand, read_operand
from backends.cuda.kernels.pointwise.read import ElementwiseRegion, elementwise_region
from backends.tensorir.accesses import flat_index
from backends.tensorir.inlining import Resolver, uses
from backends.tensorir.kernel_info import count_work
from backends.tensorir.stages import Axis, Stage, dtype_of, output_buffers, read_stages, shape_of
from fusion.declined import Declined
from fusion.structural import map_nodes

Expr = Any
_DTYPES = ("float16", "bfloat16", "float32")


@dataclass(frozen=True)
class MatrixProduct:
    """`sum over k of left[b, i, k] * right[b, k, j]`.

    Attributes:
        batches: Extent of b; so for `rows` (i), `columns` (j) and `depth` (k), which may be several axes each.
    """

    batches: int
    rows: int
    columns: int
    depth: int
    left: MatrixOperand
    right: MatrixOperand

    @property
    def dtype(self) -> str:
        """The numbers that are multiplied."""
        return dtype_of(self.left.buffer)

    @property
    def held_bytes(self) -> int:
        """Of both operands: each element once, however often it is read."""
        read = ((each, self.batches * each.extent * each.depths) for each in (self.left, self.right))
        return sum(min(prod(shape_of(each.buffer)), elements) * each.item_bytes for each, elements in read)


@dataclass(frozen=True)
class SumOfProducts(MatrixProduct):
    """A product, `sums[b, i, j]`, and what is made of the sums.

    Attributes:
        sums: The sums in float32, of the shape that the anchor has.
        epilogue: What is stored of them.
        moved_bytes: That its kernel reads and writes at least: each tensor once, an image too that windows read often.
    """

    sums: Var
    epilogue: ElementwiseRegion
    moved_bytes: int


def read_product(func: tirx.PrimFunc) -> SumOfProducts:
    """Return the parts of `func`.

    The last axes of the result that one operand alone has are the columns, those before them that the other alone has
    the rows, and all others are batches: so a convolution is a product too, of which one operand is read through its
    window.

    Raises:
        Declined: There is no sum of products, or several; an operand is more than what is loaded, or zero outside of
            a window; what is behind is not elementwise; numbers are others than float32, float16 or bfloat16.
    """
    stages = read_stages(func)
    outputs = output_buffers(func, stages)
    anchors = [stage for stage in stages if stage.combine is not None]
    if len(anchors) != 1:
        raise Declined("it has not one reduction")
    (anchor,) = anchors
    if any(0 in shape_of(stage.buffer) for stage in stages) or _extent(anchor.reduce) == 0:
        raise Declined("it is empty")
    sums, epilogue = epilogue_of_sums(stages, anchor, outputs)
    product = read_matrices(anchor, {stage.buffer: stage for stage in stages if stage is not anchor})
    check_sizes(anchor.buffer)
    if dtype_of(product.left.buffer) != dtype_of(product.right.buffer) or product.dtype not in _DTYPES:
        raise Declined("it multiplies other numbers than two of one type")
    if product.rows * product.columns == 1 and product.batches > 1:
        raise Declined("each sum has operands of its own")
    work = count_work(func)
    moved = sum(work.bytes_at({}, written=written) for written in (False, True))
    return SumOfProducts(**vars(product), sums=sums, epilogue=epilogue, moved_bytes=moved)


def read_matrices(anchor: Stage, others: Mapping[Var, Stage]) -> MatrixProduct:
    """Return the product that a reduction is; `others` are stages that its operands may be read through.

    Raises:
        Declined: It is no sum of products, or an operand is more than what is loaded, or zero outside of a window.
    """
    factors = read_factors(anchor, others)
    roles = _AxisRoles.of(anchor, factors)
    left, right = factors[1 - roles.right_at], factors[roles.right_at]
    return MatrixProduct(
        batches=_extent(roles.batch), rows=_extent(roles.rows), columns=_extent(roles.columns),
        depth=_extent(anchor.reduce),
        left=read_operand(left, roles.batch, roles.rows, anchor.reduce),
        right=read_operand(right, roles.batch, roles.columns, anchor.reduce),
    )  # fmt: skip


def read_factors(anchor: Stage, others: Mapping[Var, Stage]) -> list[Expr]:
    """Return the two factors that the anchor adds up, each an expression over its axes that loads from memory.

    Raises:
        Declined: It is no sum of products.
    """
    begins_at_zero = isinstance(anchor.identity, tirx.FloatImm) and anchor.identity.value == 0
    if anchor.combine is not tirx.Add or not begins_at_zero or not isinstance(anchor.value, tirx.Mul):
        raise Declined("it is no sum of products")
    analyzer = analyzer_over(anchor.spatial + anchor.reduce)
    found = []
    for factor in (anchor.value.a, anchor.value.b):
        value = inlined(factor, others, analyzer)
        widened = isinstance(value, tirx.Cast) and dtype_of_value(value) == "float32"
        found.append(value.value if widened else value)
    return found


@dataclass(frozen=True)
class _AxisRoles:
    """What the axes of the result are.

    Attributes:
        right_at: Which factor has the columns.
    """

    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    right_at: int

    @classmethod
    def of(cls, anchor: Stage, factors: Sequence[Expr]) -> _AxisRoles:
        axes = tuple(axis for axis in anchor.spatial if axis.extent != 1)
        users = [tuple(uses(factor, axis.var) for factor in factors) for axis in axes]
        right_at = int(not users or users[-1] != (True, False))
        columns = _begin(users, len(axes), lambda used: used[right_at] and not used[1 - right_at])
        rows = _begin(users, columns, lambda used: used[1 - right_at] and not used[right_at])
        return cls(axes[:rows], axes[rows:columns], axes[columns:], right_at)


def _begin(users: Sequence[tuple[bool, ...]], end: int, is_one: Callable[[tuple[bool, ...]], bool]) -> int:
    """Return where the run of axes that ends before `end` begins."""
    while end and is_one(users[end - 1]):
        end -= 1
    return end


def epilogue_of_sums(
    stages: Sequence[Stage], anchor: Stage, outputs: Collection[Var]
) -> tuple[Var, ElementwiseRegion]:
    """Return the sums in float32, and the stages that read them in place of what the anchor makes."""
    sums = tirx.decl_buffer(shape_of(anchor.buffer), "float32", "sums")

    def load(load: TensorLoad) -> Expr:
        return _narrowed(sums, load) if load.source.same_as(anchor.buffer) else load

    kept = [replace(stage, value=map_nodes(stage.value, (TensorLoad, load))) for stage in stages if stage is not anchor]
    if anchor.buffer in outputs:
        own = tirx.BufferLoad(anchor.buffer, [axis.var for axis in anchor.spatial])
        kept.append(Stage(anchor.buffer, anchor.spatial, (), _narrowed(sums, own)))
    epilogue = elementwise_region(kept, outputs)
    position = _position(epilogue, sums)
    if position is None:
        return sums, epilogue
    analyzer = analyzer_over(epilogue.axes)
    own = flat_index([int(axis.extent) for axis in epilogue.axes], [axis.var for axis in epilogue.axes], analyzer)
    if analyzer.can_prove_equal(position, own):
        return sums, replace(epilogue, is_in_order=True)
    return sums, replace(epilogue, order=_order(epilogue, sums, position))


def _position(epilogue: ElementwiseRegion, sums: Var) -> Expr | None:
    """Return where the sums are read, over the axes of the outputs; None where that is at several places."""
    analyzer = analyzer_over(epilogue.axes)
    positions: list[Expr] = []

    def load(buffer: Var, indices: Sequence[Expr]) -> Expr:
        if buffer.same_as(sums):
            positions.append(flat_index(shape_of(sums), indices, analyzer))
        return tirx.BufferLoad(buffer, list(indices))

    for stage in epilogue.outputs:
        Resolver(epilogue.stages, load, analyzer).resolve(stage.value, {})
    is_one = all(analyzer.can_prove_equal(each, positions[0]) for each in positions[1:])
    return positions[0] if positions and is_one else None


def _order(epilogue: ElementwiseRegion, sums: Var, position: Expr) -> tuple[int, ...]:
    """Return the places of the axes of the outputs as the sums have them, outermost first; in their own order where
    sums are read at other positions than each once, with all axes after each other."""
    analyzer, own = analyzer_over(epilogue.axes), tuple(range(len(epilogue.axes)))
    long = [place for place in own if epilogue.axes[place].extent != 1]
    steps = {place: step_of(position, epilogue.axes[place], analyzer) or 0 for place in long}
    found, inner = sorted(long, key=lambda place: -steps[place]), 1
    for place in reversed(found):
        if steps[place] != inner:
            return own
        inner *= int(epilogue.axes[place].extent)
    if found == long or inner != prod(shape_of(sums)):
        return own
    return (*(place for place in own if place not in long), *found)


def _narrowed(sums: Var, load: TensorLoad) -> Expr:
    """Return what is loaded of the sums, of the type that the graph has; `in_float32` takes the rounding away."""
    value = tirx.BufferLoad(sums, list(load.indices))
    dtype = dtype_of(load.source)
    return value if dtype == "float32" else tirx.Cast(dtype, value)


def _extent(axes: Sequence[Axis]) -> int:
    return prod(int(axis.extent) for axis in axes)
