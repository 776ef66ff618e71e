"""Reads a kernel of matmuls that share their left operand: what makes its rows, the products, and what is behind
each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tvm import tirx
from tvm.ir import Range, TensorLoad, Var
from tvm.sym import Analyzer
from tvm_ffi.structural import structural_equal

from backends.tensorir.accesses import flat_index
from backends.tensorir.roles import Output, compose, operands_of, result_of
from backends.tensorir.rows import RowBlock
from backends.tensorir.stages import Stage, dtype_of, loads, read_stages, shape_of
from fusion.declined import Declined
from fusion.structural import find
from partition.access import ANCHOR, MATMUL, find_anchors

Operands = tuple[Var, ...]
"""Rows and packed matrix."""


@dataclass(frozen=True)
class PackedProduct:
    """The rows times one packed matrix.

    Attributes:
        packed: The matrix.
        shape: Of the product, [..., channels].
        outputs: What is stored for each element of the product.
    """

    packed: Var
    shape: tuple[int, ...]
    outputs: tuple[Output, ...]

    @property
    def channels(self) -> int:
        """Columns of the matrix."""
        return self.shape[-1]


@dataclass(frozen=True)
class RowProducts:
    """The parts of the kernel.

    Attributes:
        before: The stages that make the rows, each row of one from the same row of others.
        first: The products whose epilogue makes the rows, as an MLP has them. Where neither is, the rows are given.
        rows: The left operand, [..., depth].
        products: In the order in which they are computed.
        held: What a product leaves for the epilogue of a later one and nobody else.
        alike: Whether a product leaves something for another: then all have the same channels.
        kept: Whether the rows that the kernel makes are one of its results too.
    """

    before: tuple[Stage, ...]
    first: RowProducts | None
    rows: Var
    products: tuple[PackedProduct, ...]
    held: tuple[Var, ...]
    alike: bool = False
    kept: bool = False

    @property
    def height(self) -> int:
        """How many rows there are."""
        return prod(shape_of(self.rows)[:-1])

    @property
    def depth(self) -> int:
        """Elements of a row."""
        return shape_of(self.rows)[-1]

    @property
    def makes_rows(self) -> bool:
        """Whether the rows are made inside the kernel."""
        return bool(self.before) or self.first is not None


def read_row_products(func: tirx.PrimFunc) -> RowProducts:
    """Return the parts of `func`.

    Raises:
        Declined: It has another form.
    """
    anchors = find_anchors(func)
    if not anchors or any(str(block.annotations[ANCHOR]) != MATMUL for block in anchors):
        raise Declined("not matmuls alone")
    results = {result_of(block): operands_of(block) for block in anchors}
    return _read(read_stages(func), results, func.params)


def _read(stages: Sequence[Stage], results: Mapping[Var, Operands], stored: Sequence[Var]) -> RowProducts:
    """Return the parts of `stages`, of which the buffers `stored` are needed outside."""
    rows, _ = list(results.values())[-1]
    producers = _producers(stages, rows)
    made = {stage.buffer for stage in producers}
    mine = {result: operands for result, operands in results.items() if operands[0].same_as(rows)}
    others = {result: operands for result, operands in results.items() if result not in mine}
    if not made.issuperset(others) or not made.isdisjoint(mine):
        raise Declined("the matmuls have several left operands")
    if any(dtype_of(stage.buffer) != "float32" for stage in producers):
        raise Declined("the rows are not of float32")
    if any(buffer in made and not buffer.same_as(rows) for buffer in stored):
        raise Declined("what makes the rows is needed outside")
    rest = [stage for stage in stages if stage.buffer not in made]
    if any(load.source in made and not load.source.same_as(rows) for stage in rest for load in loads(stage.value)):
        raise Declined("what is behind a product reads what makes the rows")
    behind = [stage for stage in rest if stage.buffer not in mine]
    if rows in made and any(load.source.same_as(rows) for stage in behind for load in loads(stage.value)):
        raise Declined("what is behind a product reads the rows that the kernel makes")
    kept = bool(producers) and any(buffer.same_as(rows) for buffer in stored)
    products, held, alike = _products(rest, mine, stored)
    if not others:
        _check_rows(producers, prod(shape_of(rows)[:-1]))
        return RowProducts(
            before=tuple(producers), first=None, rows=rows, products=products, held=held, alike=alike, kept=kept
        )
    if kept:
        raise Declined("the rows between two products are needed outside")
    return RowProducts(
        before=(),
        first=_makes(rows, _read(producers, others, [rows])),
        rows=rows,
        products=products,
        held=held,
        alike=alike,
    )


def _check_rows(stages: Sequence[Stage], total: int) -> None:
    """Raise where a stage reads other rows than the one it computes."""
    RowBlock(Var("first", "int64"), 1, total).restrict(stages)


def _owners(stages: Sequence[Stage], results: Sequence[Var]) -> dict[Var, int | None]:
    """Return, for each stage's buffer, the place of the last product that it depends on; None where on none."""
    owners: dict[Var, int | None] = {}
    for stage in stages:
        sources = [owners[load.source] for load in loads(stage.value) if owners.get(load.source) is not None]
        own = [place for place, result in enumerate(results) if result.same_as(stage.buffer)]
        owners[stage.buffer] = max([*own, *(place for place in sources if place is not None)], default=None)
    return owners


def _producers(stages: Sequence[Stage], rows: Var) -> list[Stage]:
    """Return the stages that `rows` depends on, in order."""
    needed = {rows}
    for stage in reversed(stages):
        if stage.buffer in needed:
            needed.update(load.source for load in loads(stage.value))
    return [stage for stage in stages if stage.buffer in needed]


def _products(
    stages: Sequence[Stage], results: Mapping[Var, Operands], stored: Sequence[Var]
) -> tuple[tuple[PackedProduct, ...], tuple[Var, ...], bool]:
    """Give each product the stages behind it.

    What it leaves for a later one counts among its outputs; returned are what nobody else needs of that, and whether
    there is any.
    """
    owners = _owners(stages, list(results))
    behind = [stage for stage in stages if stage.buffer not in results]
    reads = [(stage, load.source) for stage in behind for load in loads(stage.value)]
    held = dict.fromkeys(
        source for stage, source in reads
        if owners.get(source) is not None and owners[source] != owners[stage.buffer]
    )  # fmt: skip
    products: list[PackedProduct] = []
    for place, (result, (_, packed)) in enumerate(results.items()):
        mine = [stage for stage in behind if owners[stage.buffer] in (None, place)]
        needed = dict.fromkeys(buffer for buffer in (*stored, *held) if owners.get(buffer) == place)
        products.append(PackedProduct(packed, shape_of(result), compose(result, mine, list(needed))))
    for product in products:
        _check_held(product, products, held)
    if held and len({product.channels for product in products}) > 1:
        raise Declined("products of other widths cannot read each other")
    return tuple(products), tuple(buffer for buffer in held if buffer not in set(stored)), bool(held)


def _makes(rows: Var, first: RowProducts) -> RowProducts:
    """Return `first`, which makes `rows`.

    Raises:
        Declined: An element of a product is not in the same place of `rows`.
    """
    (output,) = (output for product in first.products for output in product.outputs if output.buffer.same_as(rows))
    shape = next(product.shape for product in first.products if output in product.outputs)
    analyzer = Analyzer()
    for var, extent in zip(output.coordinates, shape, strict=True):
        analyzer.bind(var, Range(0, extent))
    places = flat_index(shape_of(rows), output.indices, analyzer), flat_index(shape, output.coordinates, analyzer)
    if shape[-1] != shape_of(rows)[-1] or not structural_equal(*places):
        raise Declined("the rows of a product are moved before the next")
    return first


def _check_held(product: PackedProduct, products: Sequence[PackedProduct], held: Mapping[Var, None]) -> None:
    """Raise unless the epilogue of `product` reads of earlier products what the same task has stored: elements of the
    same row and column."""
    writers = {output.buffer: output for other in products for output in other.outputs}
    for output in product.outputs:
        for load in find(output.value, TensorLoad):
            if load.source not in held:
                continue
            places, _ = writers[load.source].at(output.coordinates, output.accumulator)
            same = len(places) == len(load.indices) and all(map(structural_equal, places, load.indices))
            if not same:
                raise Declined(f"{output.buffer.name} reads another element of {load.source.name}")
