"""Reads a sum of products in which several neighbouring results have one part of an image: a convolution in groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod

from tvm import tirx
from tvm.ir import Call, TensorLoad, Var
from tvm.sym import Analyzer

from backends.cuda.kernels.affine import AffineIndex, analyzer_below
from backends.tensorir.accesses import flat_index
from backends.tensorir.emit import Expr, int64
from backends.tensorir.inlining import is_branch
from backends.tensorir.stages import Axis, Stage, dtype_of, item_bytes_of, loads, shape_of, substitute
from fusion.structural import find

_DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Along:
    """The window along rows or columns of an image.

    Attributes:
        made: Places of the results; `size` those of the image.
        step: From a result to the next, in places of the image; `distance` from a tap to the next.
        before: Places of the border before the first.
        taps: How many there are.
    """

    made: int
    size: int
    step: int
    taps: int
    distance: int
    before: int

    @property
    def unit(self) -> int:
        """The step between those places that are read."""
        return gcd(self.step, self.distance) if self.taps > 1 else self.step

    def read(self, results: int) -> int:
        """Return how many places neighbouring results read, every `unit`."""
        return ((results - 1) * self.step + (self.taps - 1) * self.distance) // self.unit + 1


@dataclass(frozen=True)
class GroupedSum:
    """`sum over ry, rx, rc of image[n, y * step + ry, x * step + rx, o // width * depth + rc] * weights[..., o]`.

    Attributes:
        image: In memory, of images x rows x columns x channels; zero outside.
        weights: In memory; `weight_steps` are those of an element per ry, rx and rc, and one per o.
        images: How many there are.
        groups: Of channels; each makes `width` of `depth`.
    """

    stage: Stage
    image: Var
    weights: Var
    weight_start: int
    weight_steps: tuple[int, int, int]
    images: int
    rows: Along
    columns: Along
    groups: int
    width: int
    depth: int

    @property
    def channels(self) -> int:
        """Of the image; `made` are those of the results."""
        return self.groups * self.depth

    @property
    def made(self) -> int:
        return self.groups * self.width

    @property
    def item_bytes(self) -> int:
        """Of an element of the image."""
        return item_bytes_of(self.image)

    @property
    def taps(self) -> int:
        """Of the window."""
        return self.rows.taps * self.columns.taps

    @property
    def weight_bytes(self) -> int:
        """Of all weights."""
        return prod(shape_of(self.weights)) * item_bytes_of(self.weights)

    @property
    def reads_all_weights(self) -> bool:
        """Whether each of them is of these sums."""
        return self.taps * self.depth * self.made == prod(shape_of(self.weights))


def grouped_sum(stage: Stage) -> GroupedSum | None:
    """Return the parts of a reduction that reads memory alone; None of one that has another form."""
    is_sum = stage.combine is tirx.Add and isinstance(stage.identity, tirx.FloatImm) and stage.identity.value == 0
    if not is_sum or not isinstance(stage.value, tirx.Mul) or len(stage.spatial) != 4:
        return None
    for image, weights in ((stage.value.a, stage.value.b), (stage.value.b, stage.value.a)):
        read, conditions = _loaded(image)
        by, others = _loaded(weights)
        if read is not None and by is not None and not others:
            found = _grouped(stage, read, by, conditions)
            if found is not None:
                return found
    return None


def _loaded(value: Expr) -> tuple[TensorLoad | None, list[Expr]]:
    """Return the load that a factor is, widened or not, and what has to hold where it is not zero."""
    conditions: list[Expr] = []
    while isinstance(value, tirx.Cast) or (isinstance(value, Call) and is_branch(value)):
        if isinstance(value, Call):
            condition, value, otherwise = value.args
            if not isinstance(otherwise, tirx.FloatImm) or otherwise.value != 0:
                return None, []
            conditions += _conjuncts(condition)
        else:
            value = value.value
    is_one = isinstance(value, TensorLoad) and dtype_of(value.source) in _DTYPES
    return (value, conditions) if is_one and not any(map(loads, value.indices)) else (None, [])


def _conjuncts(condition: Expr) -> list[Expr]:
    if isinstance(condition, tirx.And):
        return [*_conjuncts(condition.a), *_conjuncts(condition.b)]
    return [condition]


def _grouped(stage: Stage, image: TensorLoad, weights: TensorLoad, conditions: Sequence[Expr]) -> GroupedSum | None:
    n, y, x, o = (axis.var for axis in stage.spatial)
    widths = [each.b for index in image.indices for each in find(index, tirx.FloorDiv) if o.same_as(each.a)]
    if len(image.indices) != 4 or len(widths) != 1 or not isinstance(widths[0], tirx.IntImm):
        return None
    sizes = {axis.var: int(axis.extent) for axis in (*stage.spatial, *stage.reduce)}
    made, width = sizes[o], int(widths[0].value)
    group, own = Var("group", "int64"), Var("own", "int64")
    of_image = {var: size for var, size in sizes.items() if not var.same_as(o)} | {group: made // width, own: width}
    parted = [substitute(index, {o: group * width + own}) for index in image.indices]
    analyzer = analyzer_below(sizes.items())
    try:
        by_image, by_row, by_column, by_channel = (_Place.of(index, of_image) for index in parted)
        position = flat_index(shape_of(weights.source), list(weights.indices), analyzer)
        taken = _Place.of(position, sizes)
        reduced = [axis.var for axis in stage.reduce if axis.extent != 1]
        taps = [_only([var for var in reduced if var in place.steps]) for place in (by_row, by_column, by_channel)]
        depth = 1 if taps[2] is None else sizes[taps[2]]
        images, height, breadth, channels = shape_of(image.source)
        if width == 1 or made % width or channels != made // width * depth or sizes[n] > images:
            return None
        is_read = by_image.is_made_of({n: 1}, of_image) and by_channel.is_made_of({group: depth, taps[2]: 1}, of_image)
        is_all = sum(tap is not None for tap in taps) == len(reduced)
        is_beside = taken.steps.get(o) == 1 and not any(var in taken.steps for var in (n, y, x))
        rows = by_row.along((y, sizes[y]), (taps[0], sizes.get(taps[0], 1)), height)
        columns = by_column.along((x, sizes[x]), (taps[1], sizes.get(taps[1], 1)), breadth)
    except _OtherForm:
        return None
    steps = [taken.steps.get(tap, 0) for tap in taps]
    borders = [each for place, size in ((2, breadth), (1, height)) for each in _inside(image.indices[place], size)]
    if not (is_read and is_all and is_beside and all(_is_any(each, borders, analyzer) for each in conditions)):
        return None
    return GroupedSum(
        stage, image.source, weights.source, weight_start=taken.start, weight_steps=(steps[0], steps[1], steps[2]),
        images=sizes[n], rows=rows, columns=columns, groups=made // width, width=width, depth=depth,
    )  # fmt: skip


class _OtherForm(Exception):
    """An index is no sum of the axes that are expected there."""


@dataclass(frozen=True)
class _Place:
    """An index as `start + sum(steps * axes)`, of the axes that it grows by."""

    start: int
    steps: Mapping[Var, int]

    @classmethod
    def of(cls, index: Expr, sizes: Mapping[Var, int]) -> _Place:
        """Return an index over these axes."""
        analyzer = analyzer_below(sizes.items())
        affine = AffineIndex.of(analyzer.simplify(index), [Axis(*each) for each in sizes.items()], analyzer)
        if affine is None or any(step < 0 for step in affine.steps):
            raise _OtherForm
        return cls(affine.start, {var: step for var, step in zip(sizes, affine.steps, strict=True) if step})

    def is_made_of(self, steps: Mapping[Var | None, int], sizes: Mapping[Var, int]) -> bool:
        """Return whether it is the sum of these axes by these steps, but for axes of one place."""
        return self.start == 0 and self.steps == {var: step for var, step in steps.items() if sizes.get(var, 1) > 1}

    def along(self, results: tuple[Var, int], taps: tuple[Var | None, int], size: int) -> Along:
        """Return the window of such results and taps in an image of this size."""
        if not set(self.steps) <= {results[0], taps[0]} or self.start > 0:
            raise _OtherForm
        step, distance = (self.steps.get(var, 1) for var in (results[0], taps[0]))
        return Along(results[1], size, step, taps=taps[1], distance=distance, before=-self.start)


def _only(found: Sequence[Var]) -> Var | None:
    """Return the axis of a list of one; None of an empty one."""
    if len(found) > 1:
        raise _OtherForm
    return found[0] if found else None


def _inside(index: Expr, size: int) -> tuple[Expr, Expr]:
    """Return what is not negative where an index is one of so many."""
    return index, int64(size - 1) - index


def _is_any(condition: Expr, borders: Sequence[Expr], analyzer: Analyzer) -> bool:
    """Return whether a condition says that one of these is not negative."""
    known = {tirx.LE: (1, 0), tirx.LT: (1, 1), tirx.GE: (-1, 0), tirx.GT: (-1, 1)}
    if type(condition) not in known:
        return False
    sign, less = known[type(condition)]
    distance = (condition.b - condition.a) * sign - less
    return any(analyzer.can_prove_equal(distance, each) for each in borders)
