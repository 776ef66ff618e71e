"""Kernels whose images are computed apart, of which only a call knows how many there are.

A buffer of `b` images has the shape (b * c, ...): each image is the `c` neighbours of the outermost axis that are its
own, and lies in one piece. The images are apart where every block that touches such buffers runs over them on one axis,
reads and writes those of the image that it computes alone, and computes the same of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx
from tvm.ir import Range, TensorLoad, Var
from tvm.s_tir.stmt import SBlock, SBlockRealize
from tvm.sym import Analyzer

from backends.tensorir.inlining import uses
from backends.tensorir.open_analyzer import is_one
from backends.tensorir.stages import substitute
from backends.tensorir.symbols import symbols_of
from fusion.declined import Declined
from fusion.structural import contains, find, map_nodes

Expr = Any
_SPATIAL = 0  # tirx.IterVar.DataPar
_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod)


@dataclass(frozen=True)
class ImageAxis:
    """Where the images are in a buffer.

    Attributes:
        dim: The axis; those before it have one element.
        rows: How many of its neighbours are one image.
    """

    dim: int
    rows: int


@dataclass(frozen=True)
class Images:
    """What is known of a kernel whose images are apart.

    Attributes:
        count: How many there are: the symbol.
        axes: Where they are in each parameter that has them, by its position.
    """

    count: Var
    axes: Mapping[int, ImageAxis]


def read_images(func: tirx.PrimFunc) -> Images:
    """Return the images of `func`, which it computes apart from each other.

    Raises:
        Declined: It has another symbol, or an image takes something of others or of their number.
    """
    symbols = symbols_of(func)
    if len(symbols) != 1:
        raise Declined("more than the number of images is open")
    if not isinstance(func.body, SBlockRealize):
        raise Declined("the function is not made of blocks")
    root = func.body.block
    buffers = [*func.params, *root.alloc_buffers]
    axes = {buffer: axis for buffer in buffers if (axis := _axis_of(buffer.ty.shape, symbols[0])) is not None}
    nests = list(root.body.seq) if isinstance(root.body, tirx.SeqStmt) else [root.body]
    for nest in nests:
        _check_nest(nest, symbols[0], axes, func.params)
    found = {place: axes[param] for place, param in enumerate(func.params) if param in axes}
    return Images(symbols[0], found)


def _axis_of(shape: Sequence[Expr], count: Var) -> ImageAxis | None:
    """Return where images are in a buffer of this shape, or None where it has none."""
    open_dims = [dim for dim, extent in enumerate(shape) if uses(extent, count)]
    if not open_dims:
        return None
    outermost = next(dim for dim, extent in enumerate(shape) if not is_one(extent))
    if open_dims != [outermost]:
        raise Declined("the images are not on the outermost axis of a buffer")
    return ImageAxis(outermost, _rows_of_each(shape[outermost], count))


def _rows_of_each(extent: Expr, count: Var) -> int:
    rows = _rows(extent, count)
    if rows is None:
        raise Declined("an extent is no multiple of the number of images")
    return rows


def _rows(extent: Expr, count: Var) -> int | None:
    """Return what `count` is multiplied by in an extent; None where that is no number."""
    rows = Analyzer().simplify(substitute(extent, {count: tirx.const(1, count.ty.dtype)}))
    if not isinstance(rows, tirx.IntImm) or not Analyzer().can_prove_equal(extent, count * rows):
        return None
    return int(rows.value)


def _check_nest(nest: tirx.Stmt, count: Var, axes: Mapping[Var, ImageAxis], params: Sequence[Var]) -> None:
    """Raise `Declined` unless the block in `nest` computes each image of what it writes from the same of what it
    reads."""
    loops: dict[Var, Expr] = {}
    while isinstance(nest, tirx.For):
        loops[nest.loop_var] = nest.extent
        nest = nest.body
    if not isinstance(nest, SBlockRealize) or find(nest.block.body, SBlock) or nest.block.match_buffers:
        raise Declined("a loop holds more than one block")
    block, image, analyzer = nest.block, Var("image", count.ty.dtype), Analyzer()
    values = _over_images(nest, loops, count, image, analyzer)
    written = {store.buffer for store in find(block.body, tirx.BufferStore)}
    shared = written - axes.keys() if values else written.intersection([*axes, *params])
    if shared or (not values and any(uses(extent, count) for extent in loops.values())):
        raise Declined(f"block {block.name_hint} computes something that all images share")
    for part in (block.init, block.body):
        if part is not None:
            _Block(image, count, values, axes, analyzer).check(part)


def _over_images(
    nest: SBlockRealize, loops: Mapping[Var, Expr], count: Var, image: Var, analyzer: Analyzer
) -> Mapping[Var, Expr]:
    """Return the axis of a block over images in terms of `image`, if it has one; tell `analyzer` how far all reach.

    Raises:
        Declined: It has several, or one that is no loop.
    """
    name, values = nest.block.name_hint, dict[Var, Expr]()
    for iter_var, value in zip(nest.block.iter_vars, nest.iter_values, strict=True):
        extent = iter_var.dom.extent
        if not uses(extent, count):
            analyzer.bind(iter_var.var, iter_var.dom)
            continue
        if values or int(iter_var.iter_type) != _SPATIAL:
            raise Declined(f"block {name} runs over images on more axes than one, or sums over them")
        is_loop = isinstance(value, Var) and value in loops and analyzer.can_prove_equal(loops[value], extent)
        if not is_loop or not is_one(nest.predicate):
            raise Declined(f"block {name} covers its domain in an order that is not plain")
        row, rows = Var("row", count.ty.dtype), _rows_of_each(extent, count)
        analyzer.bind(row, Range.from_min_extent(tirx.const(0, row.ty.dtype), tirx.const(rows, row.ty.dtype)))
        values[iter_var.var] = image * rows + row if rows > 1 else image
    return values


@dataclass
class _Block:
    """Finds why the images that a block computes are not apart.

    Attributes:
        image: The one that it computes.
        count: How many there are.
        values: What the block's axis over images is in terms of `image`.
        axes: Where the images are in each buffer.
        reasons: Those found. A walk in C++ that Python's exceptions left corrupted memory.
    """

    image: Var
    count: Var
    values: Mapping[Var, Expr]
    axes: Mapping[Var, ImageAxis]
    analyzer: Analyzer
    reasons: list[str] = field(default_factory=list)

    def check(self, part: tirx.Stmt) -> None:
        """Raise `Declined` unless all that a part of the block does depends on the image by what it accesses alone."""
        rest = map_nodes(
            part,
            (Var, lambda var: self.values.get(var, var)),
            (_ARITHMETIC, self._simplified),
            (TensorLoad, self._load),
            (tirx.BufferStore, self._store),
        )
        self._check_alike(rest)
        if self.reasons:
            raise Declined(self.reasons[0])

    def _simplified(self, node: Expr) -> Expr:
        """Return arithmetic in terms of `image`, whose rows are among those of all images."""
        if isinstance(node, tirx.FloorDiv | tirx.FloorMod) and uses(node.b, self.count):
            rows = _rows(node.b, self.count)
            if rows is not None and self._is_own(node.a, rows):
                return node.a if isinstance(node, tirx.FloorMod) else tirx.const(0, node.ty.dtype)
        return self.analyzer.simplify(node)

    def _is_own(self, index: Expr, rows: int) -> bool:
        """Return whether an index of an axis with so many rows an image is one of the image that is computed."""
        return bool(self.analyzer.can_prove_equal(tirx.floordiv(index, rows), self.image))

    def _load(self, load: TensorLoad) -> Expr:
        return Var("element", load.ty) if self._is_inside(load.source, load.indices) else load

    def _store(self, store: tirx.BufferStore) -> tirx.Stmt:
        return tirx.Evaluate(store.value) if self._is_inside(store.buffer, store.indices) else store

    def _is_inside(self, buffer: Var, indices: Sequence[Expr]) -> bool:
        """Return whether a buffer has images, of which the one is accessed that is computed."""
        axis = self.axes.get(buffer)
        if axis is None:
            return False
        if not self._is_own(indices[axis.dim], axis.rows):
            self.reasons.append("an image reads or writes another image")
        self._check_alike(self.analyzer.simplify(indices[axis.dim] - self.image * axis.rows))
        for index in (*indices[: axis.dim], *indices[axis.dim + 1 :]):
            self._check_alike(index)
        return True

    def _check_alike(self, part: Any) -> None:
        """Take down where `part`, without its accesses to images, differs from image to image."""
        apart = {self.image, self.count, *self.axes}
        if contains(part, (Var, lambda var: var in apart)):
            self.reasons.append("what an image is depends on which of them it is, or on how many there are")


