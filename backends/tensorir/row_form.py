"""Kernels whose rows only a call knows, with one axis for the rows and numbers for all other extents.

A kernel over [b, l, 384] computes each of its b * l rows alike. Its row form has one axis in their place, which is
longer than any call's rows, so that what reads kernels of numbers reads it too; symbols are left in indices alone:

    for i, j, c in grid(b, l, 384): y[i, j, c] = x[i, j, c] + p[0, j, c]
->
    for r, c in grid(ROWS, 384):    y'[r, c] = x'[r, c] + p'[r % l, c]

Heads that are stored apart are rows as well: `y[b, 2, l, 64]` is `y'[ROWS, 2, 64]`, and so is `y[b * 2, l, 64]`.
Loops over some of the rows are written for the row form, and then `RowForm.restore` puts the kernel's own buffers in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations, takewhile
from operator import mul
from typing import Any

from tvm import tirx
from tvm.ir import Range, TensorLoad, TensorRegion, Var
from tvm.s_tir.stmt import SBlock, SBlockRealize
from tvm.sym import Analyzer
from tvm_ffi.structural import structural_equal

from backends.tensorir.accesses import flat_index
from backends.tensorir.bare_symbols import multiples_of
from backends.tensorir.emit import Expr, Nest, int64
from backends.tensorir.split_shape import SplitShape
from backends.tensorir.stages import dtype_of, shape_of, substitute
from fusion.declined import Declined
from fusion.structural import find, map_nodes

_REDUCED = 2  # tirx.IterVar.CommReduce
_SPATIAL = tirx.IterVar.DataPar
ROWS = 2**31 - 1
"""Rows of a row form: a prime, so that no other extents of a buffer make up as many."""

_FEWER_ROWS = 2**29
"""Extent of what stands for leading axes that are not all of the rows."""


@dataclass(frozen=True)
class RowView:
    """What stands for a buffer with symbols in its shape: one axis for some of its axes, then the others.

    Attributes:
        buffer: The kernel's own.
        own: What stands for it.
        axes: Those that it has, or that are taken apart for its rows.
        merged: Which of these are one.
        whole: Whether these are all rows of the kernel.
        begins: On which place of each axis of the buffer that begins which the kernel writes, as behind a cache; ()
            where it writes or reads all.
    """

    buffer: Var
    own: Var
    axes: SplitShape
    merged: tuple[int, ...]
    whole: bool
    begins: tuple[Expr, ...] = ()

    @staticmethod
    def of(
        buffer: Var, lead: Sequence[Expr], multiples: Mapping[str, int], written: OpenSlice | None = None
    ) -> RowView:
        """Return the view of `buffer` in a kernel whose rows have the shape `lead`; `multiples` are of which number
        each symbol is one, and `written` is what of it the kernel writes if that is not all."""
        shape = list(buffer.ty.shape if written is None else written.shape)
        choices = (SplitShape.whole(shape), SplitShape.of(shape, lead, multiples))
        axes = next((axes for axes in choices if _rows_in(axes.dims, lead)), choices[0])
        rows = _rows_in(axes.dims, lead)
        merged = rows or tuple(range(1 + max(place for place, dim in enumerate(shape) if not _is_number(dim))))
        rest = [dim for place, dim in enumerate(axes.dims) if place not in merged]
        own = tirx.decl_buffer((ROWS if rows else _FEWER_ROWS, *rest), dtype_of(buffer), buffer.name)
        begins = () if written is None else written.begins
        return RowView(buffer, own, axes, merged=merged, whole=bool(rows), begins=begins)

    @property
    def dims(self) -> list[Expr]:
        """The extents that are one."""
        return [self.axes.dims[axis] for axis in self.merged]

    @property
    def is_leading(self) -> bool:
        """Whether the elements of a row lie together, one row behind the other: the axes that are one are the first."""
        return not self.begins and self.merged == tuple(range(len(self.merged)))

    def split(self, indices: Sequence[Expr]) -> tuple[list[Expr], list[Expr]]:
        """Return the indices of the merged axes, and those of the others."""
        analyzer, begins = Analyzer(), self.begins or (int64(0),) * len(indices)
        pairs = zip(indices, begins, strict=True)
        own = [index if _is_zero(begin) else analyzer.simplify(index - begin) for index, begin in pairs]
        places = self.axes.split(own)
        merged = [places[axis] for axis in self.merged]
        return merged, [place for axis, place in enumerate(places) if axis not in self.merged]

    def restore(self, indices: Sequence[Expr]) -> list[Expr]:
        """Return the indices in the kernel's own buffer of an element of the view.

        Leading axes need no division: an index beyond the end of an axis is the same place in memory.
        """
        if self.is_leading:
            return self.axes.join([int64(0)] * (len(self.merged) - 1) + list(indices))
        row, *rest = _spread(indices, shape_of(self.own))
        merged = dict(zip(self.merged, divided(row, self.dims), strict=True))
        others = iter(rest)
        places = [merged[axis] if axis in merged else next(others) for axis in range(len(self.axes.dims))]
        begins = self.begins or (int64(0),) * len(self.buffer.ty.shape)
        pairs = zip(self.axes.join(places), begins, strict=True)
        return [index if _is_zero(begin) else index + begin for index, begin in pairs]


@dataclass(frozen=True)
class OpenSlice:
    """A part of a buffer with symbols in its shape, which a kernel writes.

    Attributes:
        shape: Its extents, of axes with a number those of the buffer.
        begins: On which place of each axis of the buffer it begins.
    """

    shape: tuple[Expr, ...]
    begins: tuple[Expr, ...]

    @staticmethod
    def of(block: SBlock) -> OpenSlice | None:
        """Return what a block writes; None where that is a whole buffer, or what it writes is not told by its axes."""
        store = block.body
        axes = {axis.var: axis.dom.extent for axis in block.iter_vars}
        shape, begins = list[Expr](), list[Expr]()
        for index, dim in zip(store.indices, store.buffer.ty.shape, strict=True):
            axis, begin = (index.a, index.b) if isinstance(index, tirx.Add) else (index, int64(0))
            is_part = not _is_number(dim) and axis in axes and not any(var in axes for var in find(begin, Var))
            if not _is_number(dim) and not is_part:
                return None
            shape.append(axes[axis] if is_part else dim)
            begins.append(begin if is_part else int64(0))
        is_whole = all(map(structural_equal, shape, store.buffer.ty.shape))
        return None if is_whole else OpenSlice(tuple(shape), tuple(begins))


@dataclass(frozen=True)
class RowForm:
    """A kernel whose rows only a call knows, as one of `ROWS` rows.

    Attributes:
        func: The kernel with numbers for extents.
        rows: How many rows there are, an expression of the kernel's symbols.
        views: By what stands for a buffer.
    """

    func: tirx.PrimFunc
    rows: Expr
    views: Mapping[Var, RowView]

    @staticmethod
    def of(func: tirx.PrimFunc, lead: Sequence[Expr]) -> RowForm:
        """Return the row form of `func`, whose rows have the shape `lead`; where that is their number alone, as torch
        has products of all tokens, maybe a shape that a buffer has of them, so that others have these axes apart.

        Raises:
            Declined: A block computes something else than rows, or one row from another.
        """
        refused: Declined | None = None
        for shape in (lead, *_shapes_of_rows(lead, _buffers_of(func))):
            try:
                return RowForm._of(func, shape)
            except Declined as reason:
                refused = refused or reason
        assert refused is not None
        raise refused

    @staticmethod
    def _of(func: tirx.PrimFunc, lead: Sequence[Expr]) -> RowForm:
        root, buffers = _root_of(func), _buffers_of(func)
        rows = Analyzer().simplify(reduce(mul, lead))
        opened, multiples = [buffer for buffer in buffers if _has_open_rows(buffer, rows)], multiples_of(func)
        blocks = [block for block in find(root.body, SBlock) if isinstance(block.body, tirx.BufferStore)]
        written = {block.body.buffer: OpenSlice.of(block) for block in blocks}
        views = {buffer: RowView.of(buffer, lead, multiples, written.get(buffer)) for buffer in opened}
        if any(buffer in views and not views[buffer].whole for buffer in root.alloc_buffers):
            raise Declined("something is computed for a part of the rows' axes")
        nests = list(root.body.seq) if isinstance(root.body, tirx.SeqStmt) else [root.body]
        merged = [_Merge.of(nest, views).nest() for nest in nests]
        body = merged[0] if len(merged) == 1 else tirx.SeqStmt(merged)
        made = [views[buffer].own if buffer in views else buffer for buffer in root.alloc_buffers]
        block = SBlock([], [], [], root.name_hint, body, None, made, [], root.annotations)
        params = [views[param].own if param in views else param for param in func.params]
        form = tirx.PrimFunc(params, SBlockRealize([], True, block), func.ret_type, func.attrs)
        return RowForm(form, rows, {view.own: view for view in views.values()})

    def lies_apart(self, buffer: Var) -> bool:
        """Return whether the elements of a row of `buffer` do not lie together."""
        return buffer in self.views and not self.views[buffer].is_leading

    def restore(self, body: tirx.Stmt) -> tirx.Stmt:
        """Return loops over the row form with the kernel's own buffers."""

        def load(node: TensorLoad) -> Expr:
            view = self.views.get(node.source)
            return node if view is None else tirx.BufferLoad(view.buffer, view.restore(node.indices))

        def store(node: tirx.BufferStore) -> tirx.Stmt:
            view = self.views.get(node.buffer)
            return node if view is None else tirx.BufferStore(view.buffer, node.value, view.restore(node.indices))

        restored = map_nodes(body, (TensorLoad, load), (tirx.BufferStore, store))
        return map_nodes(restored, (tirx.FloorDiv, _divided_once), (tirx.FloorMod, _without_sign))


@dataclass(frozen=True)
class _Merge:
    """One nest of the kernel, its loops over rows about to be one.

    Attributes:
        block: What it computes.
        row: The one axis.
        places: What its axes over rows are on that axis.
        parts: What is left of those of them that are axes of rows and of parts of each.
        extents: Of the block's axes.
    """

    block: SBlock
    row: Var
    places: Mapping[Var, Expr]
    parts: Sequence[tirx.IterVar]
    extents: Mapping[Var, Expr]
    views: Mapping[Var, RowView]
    analyzer: Analyzer

    @staticmethod
    def of(nest: tirx.Stmt, views: Mapping[Var, RowView]) -> _Merge:
        while isinstance(nest, tirx.For):
            nest = nest.body
        if not isinstance(nest, SBlockRealize) or not isinstance(nest.block.body, tirx.BufferStore):
            raise Declined("a nest of loops is not one store")
        block, row, analyzer = nest.block, Var("row", "int64"), Analyzer()
        extents = {axis.var: axis.dom.extent for axis in block.iter_vars}
        places, parts = dict[Var, Expr](), list[tirx.IterVar]()
        view = views.get(block.body.buffer)
        if view is not None:
            stored, _ = view.split(block.body.indices)
            for index, place in zip(stored, divided(row, view.dims, tirx.floordiv, tirx.floormod), strict=True):
                if isinstance(index, Var):
                    places[index] = place
                elif isinstance(index, tirx.FloorDiv) and isinstance(index.a, Var) and _is_number(index.b):
                    part = tirx.IterVar(Range(int64(0), index.b), Var(f"{index.a.name}_part", "int64"), _SPATIAL)
                    places[index.a] = place * index.b + part.var
                    parts.append(part)
        summed = {axis.var for axis in block.iter_vars if int(axis.iter_type) == _REDUCED}
        if not all(_is_number(extent) or var in places or var in summed for var, extent in extents.items()):
            raise Declined(f"block {block.name_hint} has an open size beside its rows")
        for var, extent in extents.items():
            analyzer.bind(var, Range(tirx.const(0, extent.ty.dtype), extent))
        for part in parts:
            analyzer.bind(part.var, part.dom)
        return _Merge(block, row, places, parts, extents, views=views, analyzer=analyzer)

    def nest(self) -> tirx.Stmt:
        """Return it with one loop over rows."""
        block, axes = self.block, [axis for axis in self.block.iter_vars if axis.var not in self.places]
        if self.places:
            axes = [tirx.IterVar(Range(int64(0), int64(ROWS)), self.row, _SPATIAL), *self.parts, *axes]
        regions = [[self._region(region) for region in part] for part in (block.reads, block.writes)]
        init = None if block.init is None else self._moved(block.init)
        merged = SBlock(
            axes, *regions, block.name_hint, self._moved(block.body), init, [], [], block.annotations
        )  # fmt: skip
        loops = [Var(axis.var.name, axis.var.ty) for axis in axes]
        body: tirx.Stmt = SBlockRealize(loops, True, merged)
        for var, axis in zip(reversed(loops), reversed(axes), strict=True):
            nest = Nest()
            nest.add_loop(var, axis.dom.extent, tirx.ForKind.SERIAL, [body])
            body = nest.finish()
        return body

    def _moved(self, store: tirx.BufferStore) -> tirx.Stmt:
        """Return a store over the row form."""
        value = map_nodes(store.value, (TensorLoad, lambda load: tirx.BufferLoad(*self._at(load.source, load.indices))))
        buffer, indices = self._at(store.buffer, store.indices)
        return tirx.BufferStore(buffer, substitute(value, self.places), indices)

    def _at(self, buffer: Var, indices: Sequence[Expr]) -> tuple[Var, list[Expr]]:
        """Return the place in the row form of an element that the block reads or writes.

        Raises:
            Declined: It is in another row than the one that is computed.
        """
        view = self.views.get(buffer)
        found = [self._place_of(index) for index in indices]
        if view is None:
            return buffer, found
        merged, rest = view.split(found)
        if self.parts:
            merged, rest = ([self.analyzer.simplify(index) for index in each] for each in (merged, rest))
        # TVM does not find r in r // (2 * n) * (2 * n) + r % (2 * n).
        own = divided(self.row, view.dims, tirx.floordiv, tirx.floormod)
        is_own = view.whole and all(map(structural_equal, merged, own))
        flat = self.row if is_own else flat_index(view.dims, merged, Analyzer())
        if view.whole and not structural_equal(flat, self.row):
            raise Declined(f"block {self.block.name_hint} reads another row of {buffer.name}")
        return view.own, [flat, *rest]

    def _place_of(self, index: Expr) -> Expr:
        found = substitute(self._inside(index), self.places)
        return self.analyzer.simplify(found) if self.parts else found

    def _inside(self, index: Expr) -> Expr:
        """Return an index without divisions by the open extent of the axis that is divided."""

        def rule(node: Any) -> Expr:
            divided = self.analyzer.simplify(node.a)
            if not self._is_below(divided, node.b):
                return type(node)(divided, node.b)
            return divided if isinstance(node, tirx.FloorMod) else tirx.const(0, divided.ty.dtype)

        return self.analyzer.simplify(map_nodes(index, ((tirx.FloorDiv, tirx.FloorMod), rule)))

    def _is_below(self, index: Expr, extent: Expr) -> bool:
        """Return whether `index` counts an axis of this extent, or axes behind one another that make up this extent."""
        if isinstance(index, Var):
            return bool(structural_equal(self.extents.get(index), extent))
        axes = list(self.extents)
        runs = (axes[first:end] for first, end in combinations(range(len(axes) + 1), 2))
        counted = ((run, [self.extents[var] for var in run]) for run in runs if len(run) > 1)
        return any(
            structural_equal(index, flat_index(extents, run, self.analyzer))
            and self.analyzer.can_prove_equal(reduce(mul, extents), extent)
            for run, extents in counted
        )

    def _region(self, region: TensorRegion) -> TensorRegion:
        """Return the whole buffer: readers of a block ask which buffers it accesses."""
        view = self.views.get(region.source)
        buffer = region.source if view is None else view.own
        return tirx.BufferRegion(buffer, [Range(int64(0), dim) for dim in buffer.ty.shape])


def _divided_once(node: tirx.FloorDiv) -> Expr:
    """Return the division of a place, which is not negative, by open extents as one: 112x112 rows of 32 elements, each
    of which is divided to find its image, took 1.6 times as long with two that ask for signs."""
    if _is_number(node.b):
        return node
    inside = node.a
    if isinstance(inside, tirx.Div) and not _is_number(inside.b):
        return tirx.truncdiv(inside.a, inside.b * node.b)
    return tirx.truncdiv(inside, node.b)


def _without_sign(node: tirx.FloorMod) -> Expr:
    """Return what is left of a place by an open extent; neither is negative."""
    return node if _is_number(node.b) else tirx.truncmod(node.a, node.b)


def divided(row: Expr, dims: Sequence[Expr], divide: Any = tirx.truncdiv, remainder: Any = tirx.truncmod) -> list[Expr]:
    """Return the indices of row `row` in axes of the extents `dims`; axes of extent 1 get 0."""
    indices: list[Expr] = []
    outermost = next((axis for axis, dim in enumerate(dims) if not _is_one(dim)), 0)
    for axis in reversed(range(len(dims))):
        if _is_one(dims[axis]):
            indices.append(int64(0))
        elif axis == outermost:
            indices.append(row)
        else:
            indices.append(remainder(row, dims[axis]))
            row = divide(row, dims[axis])
    return indices[::-1]


def _has_open_rows(buffer: Var, rows: Expr) -> bool:
    """Return whether a buffer has symbols in its shape, and not only beside rows whose number is known."""
    shape = list(buffer.ty.shape)
    return not all(map(_is_number, shape)) and not (_is_number(rows) and _rows_in(shape, [rows]))


def _buffers_of(func: tirx.PrimFunc) -> list[Var]:
    params = [param for param in func.params if hasattr(param.ty, "shape")]
    return [*params, *_root_of(func).alloc_buffers]


def _shapes_of_rows(lead: Sequence[Expr], buffers: Sequence[Var]) -> list[Sequence[Expr]]:
    """Return the shapes of several axes that buffers have as many rows in as `lead`, which is their number, says."""
    if len(lead) > 1 or _is_number(lead[0]):
        return []
    analyzer, found = Analyzer(), list[Sequence[Expr]]()
    for buffer in buffers:
        axes = list(takewhile(lambda dim: not _is_number(dim), buffer.ty.shape))
        for count in range(2, len(axes) + 1):
            shape = axes[:count]
            is_new = not any(structural_equal(tuple(shape), tuple(each)) for each in found)
            if is_new and analyzer.can_prove_equal(reduce(mul, shape), lead[0]):
                found.append(shape)
    return found


def _rows_in(shape: Sequence[Expr], lead: Sequence[Expr]) -> tuple[int, ...]:
    """Return which axes of a shape make up the rows: the first ones, or those of `lead` in order; () where none do.

    Where the first ones are those of `lead` in another order, the rows lie transposed.
    """
    transposed = _transposed(shape[: len(lead)], lead)
    if transposed:
        return transposed
    analyzer = Analyzer()
    total = reduce(mul, lead)
    for count in range(1, len(shape) + 1):
        if analyzer.can_prove_equal(reduce(mul, shape[:count]), total):
            return tuple(range(count))
    found: list[int] = []
    for axis, dim in enumerate(shape):
        if len(found) < len(lead) and structural_equal(dim, lead[len(found)]):
            found.append(axis)
    return tuple(found) if len(found) == len(lead) else ()


def _transposed(shape: Sequence[Expr], lead: Sequence[Expr]) -> tuple[int, ...]:
    """Return the axis of `shape` that each extent of `lead` is on; () where it has others, or all in order."""
    if any(structural_equal(one, two) for one, two in combinations(lead, 2)):
        return ()
    places = [[axis for axis, dim in enumerate(shape) if structural_equal(dim, extent)] for extent in lead]
    found = tuple(axes[0] for axes in places if axes)
    return found if len(found) == len(lead) and found != tuple(range(len(lead))) else ()


def _spread(indices: Sequence[Expr], shape: Sequence[int]) -> list[Expr]:
    """Return the indices of an element whose last index may carry more than its own axis."""
    *outer, _ = indices
    if not outer or not all(isinstance(index, tirx.IntImm) and index.value == 0 for index in outer):
        return list(indices)
    flat = indices[-1]
    if isinstance(flat, tirx.Ramp):
        raise Declined("a vector is read across rows that lie apart")
    return [
        Analyzer().simplify(index) for index in divided(flat, list(map(int64, shape)), tirx.floordiv, tirx.floormod)
    ]


def _root_of(func: tirx.PrimFunc) -> SBlock:
    if not isinstance(func.body, SBlockRealize):
        raise Declined("the function is not made of blocks")
    return func.body.block


def _is_number(dim: Expr) -> bool:
    return isinstance(dim, tirx.IntImm)


def _is_zero(index: Expr) -> bool:
    return _is_number(index) and int(index.value) == 0


def _is_one(dim: Expr) -> bool:
    return _is_number(dim) and int(dim.value) == 1
