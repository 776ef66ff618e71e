"""Reads the kernel of two products of batches, the attention among them, and the stages before, between and behind."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from math import prod

from tvm import tirx
from tvm.ir import TensorLoad, Var

from backends.tensorir.emit import Expr, int64
from backends.tensorir.roles import compose
from backends.tensorir.stages import Axis, Stage, dims_of, dtype_of, is_at, loads, read_stages, shape_of, substitute
from fusion.declined import Declined
from fusion.structural import map_nodes
from partition.access import find_anchors, is_zero

ATTENTION = "attention"


@dataclass(frozen=True)
class Chain:
    """Sizes of [batch, rows, depth] x [batch, depth, keys], whose rows go on to [batch, keys, channels]."""

    batch: int
    rows: int
    depth: int
    keys: int
    channels: int


@dataclass(frozen=True)
class AttentionStages:
    """The stages of `values(softmax(epilogue(scores)))`, or of `values(epilogue(scores))`.

    Attributes:
        scores: The first product.
        epilogue: What maps each of its elements to one of its own.
        rows: What follows, from the first reduction on: each row depends on the same row of scores only. None, where
            there is no reduction.
        values: The second product.
        behind: What follows it.
    """

    scores: Stage
    epilogue: tuple[Stage, ...]
    rows: tuple[Stage, ...]
    values: Stage
    behind: tuple[Stage, ...]

    @property
    def weights(self) -> Var:
        """The buffer whose rows the second product reads."""
        return operand(self.values, 0).source

    @property
    def entering(self) -> list[Var]:
        """The buffers that `rows` and the second product read of those before."""
        before = {stage.buffer for stage in (self.scores, *self.epilogue)}
        read = (load.source for stage in self.rows for load in loads(stage.value))
        return [buffer for buffer in dict.fromkeys((*read, self.weights)) if buffer in before]

    @property
    def chain(self) -> Chain:
        """The sizes."""
        *batch, rows, keys = shape_of(self.scores.buffer)
        (depth,) = (axis.extent for axis in self.scores.reduce)
        return Chain(prod(batch), rows, depth, keys, shape_of(self.values.buffer)[-1])


def read_attention(func: tirx.PrimFunc) -> AttentionStages:
    """Return the parts of `func`.

    Raises:
        Declined: It has another form.
    """
    products = {block.writes[0].source for block in find_anchors(func)}
    stages = _operands_inlined(read_stages(func), products, func.params)
    places = [place for place, stage in enumerate(stages) if stage.buffer in products]
    if len(places) != 2 or places[0] != 0:
        raise Declined("not two products, the first before all else")
    scores, values = (stages[place] for place in places)
    middle, behind = _tests_inlined(stages[1 : places[1]]), stages[places[1] + 1 :]
    epilogue = tuple(takewhile(lambda stage: stage.combine is None, middle))
    rows = tuple(middle[len(epilogue) :])
    if not all(operand(product, 0).is_contiguous(operand(product, 0).step) for product in (scores, values)):
        raise Declined("the rows of a product are not contiguous")
    found = AttentionStages(scores, epilogue, rows, values, tuple(behind))
    if not found.weights.same_as(stages[places[1] - 1].buffer):
        raise Declined("the second product does not read what stands before it")
    _check_rows(found)
    return found


def _tests_inlined(middle: list[Stage]) -> list[Stage]:
    """Return `middle` without the stages of booleans, which are computed where they are read.

    test[b, m, n] = isnan(p[b, m, n]); q[b, m, n] = select(test[b, m, n], 0, p[b, m, n])
    ->  q[b, m, n] = select(isnan(p[b, m, n]), 0, p[b, m, n])
    """
    kept: list[Stage] = []
    tests: dict[Var, Stage] = {}

    def in_place(load: TensorLoad) -> Expr:
        test = tests.get(load.source)
        if test is None:
            return load
        return substitute(test.value, dict(zip((axis.var for axis in test.spatial), load.indices, strict=True)))

    for stage in middle:
        inlined = replace(stage, value=map_nodes(stage.value, (TensorLoad, in_place)))
        if dtype_of(stage.buffer) == "bool" and stage.combine is None:
            tests[stage.buffer] = inlined
        else:
            kept.append(inlined)
    return kept


def _check_rows(found: AttentionStages) -> None:
    """Raise where a stage between the products has other rows than the scores, reads other rows than its own, or is not
    of float32."""
    compose(found.scores.buffer, found.epilogue, found.entering)
    scores = dims_of(found.scores.buffer)
    made = [*found.entering, *(stage.buffer for stage in found.rows)]
    if any(dtype_of(buffer) != "float32" for buffer in made):
        raise Declined("a stage between the products is not of float32")
    zero = tirx.const(0, "int64")
    local = {buffer: tirx.decl_buffer(local_shape(buffer, scores, 1, scores[-1])) for buffer in made}
    in_block(found.rows, Block((zero,) * (len(scores) - 2), zero, 1), local)


def _operands_inlined(stages: list[Stage], products: Collection[Var], params: Collection[Var]) -> list[Stage]:
    """Return `stages` without the transposes of parameters that products read: those read the parameters.

    turned[b, k, n] = keys[b, n, k]; scores[b, m, n] += queries[b, m, k] * turned[b, k, n]
    ->  scores[b, m, n] += queries[b, m, k] * keys[b, n, k]
    """
    read = {load.source for stage in stages if stage.buffer in products for load in loads(stage.value)}
    turned = {
        stage.buffer: stage
        for stage in stages
        if stage.buffer in read and isinstance(stage.value, TensorLoad) and stage.value.source in params
    }

    def at_source(load: TensorLoad) -> Expr:
        stage = turned.get(load.source)
        if stage is None:
            return load
        return substitute(stage.value, dict(zip((axis.var for axis in stage.spatial), load.indices, strict=True)))

    kept = (stage for stage in stages if stage.buffer not in turned)
    return [replace(stage, value=map_nodes(stage.value, (TensorLoad, at_source))) for stage in kept]


@dataclass(frozen=True)
class Operand:
    """One side of a product as it lies, its own axes in any order.

    Attributes:
        load: Its element, over the axes of the product.
        batch: Axes of the batch.
        place: The row, or on the right side the column.
        step: The axis that is summed over.
    """

    load: TensorLoad
    batch: tuple[Axis, ...]
    place: Axis
    step: Axis

    @property
    def source(self) -> Var:
        """What it is read from."""
        return self.load.source

    def is_contiguous(self, axis: Axis) -> bool:
        """Return whether elements that follow each other on `axis` do so in memory."""
        return is_at(self.load.indices[-1], axis)

    def distance(self, axis: Axis) -> int:
        """Return how many elements of memory lie between neighbours on `axis`; 0 where there is only one."""
        places = [place for place, index in enumerate(self.load.indices) if is_at(index, axis)]
        return prod(shape_of(self.source)[places[0] + 1 :]) if places else 0

    def at(self, batch: Sequence[Expr], place: Expr, step: Expr) -> TensorLoad:
        """Return the load of an element; a vector of them for a ramp of places that are contiguous."""
        axes = (*self.batch, self.place, self.step)
        known = dict(zip((axis.var for axis in axes), map(int64, (*batch, place, step)), strict=True))
        return tirx.BufferLoad(self.source, [substitute(index, known) for index in self.load.indices])


def operand(product: Stage, position: int) -> Operand:
    """Return the left (0) or right (1) operand of a product."""
    factors = (product.value.a, product.value.b) if isinstance(product.value, tirx.Mul) else ()
    if not all(isinstance(factor, TensorLoad) for factor in factors) or not factors:
        raise Declined("a product is not one of two loads")
    *batch, row, column = product.spatial
    (step,) = product.reduce
    own, load = [*batch, (row, column)[position], step], factors[position]
    if not all(any(is_at(index, axis) for axis in own) or is_zero(index) for index in load.indices):
        raise Declined("an operand of a product lies in other axes than its own")
    return Operand(load, tuple(batch), (row, column)[position], step)


@dataclass(frozen=True)
class Block:
    """Rows of one batch.

    Attributes:
        batch: Indices of the batch.
        first: The first row.
        rows: How many.
    """

    batch: tuple[Expr, ...]
    first: Expr
    rows: int


def in_block(stages: Sequence[Stage], block: Block, local: Mapping[Var, Var]) -> list[Stage]:
    """Return `stages` over the rows of a block alone, writing and reading the buffers of `local`.

    `sum[b, m] += exp[b, m, k]`  ->  `local_sum[i] += local_exp[i, k]`
    """
    return [_in_block(stage, block, local) for stage in stages]


def _in_block(stage: Stage, block: Block, local: Mapping[Var, Var]) -> Stage:
    lead = len(block.batch) + 1
    own, rest = stage.spatial[:lead], stage.spatial[lead:]
    row = Axis(Var("row", "int64"), block.rows)

    def move(load: TensorLoad) -> Expr:
        if load.source not in local:
            return load
        if not all(map(is_at, load.indices[:lead], own)):
            raise Declined(f"{stage.buffer.name} reads another row")
        return tirx.BufferLoad(local[load.source], [row.var, *load.indices[lead:]])

    places = dict(zip((axis.var for axis in own), (*block.batch, block.first + row.var), strict=True))
    value = substitute(map_nodes(stage.value, (TensorLoad, move)), places)
    return replace(stage, buffer=local[stage.buffer], spatial=(row, *rest), value=value)


def local_shape(buffer: Var, scores: tuple[int, ...], rows: int, row_elements: int) -> tuple[int, ...]:
    """Return the shape of the part of a buffer that belongs to `rows` rows of `scores`, `row_elements` apart.

    Raises:
        Declined: The buffer has other rows.
    """
    shape, lead = dims_of(buffer), scores[:-1]
    if shape[: len(lead)] != lead or shape[len(lead) :] not in ((), (1,), scores[-1:]):
        raise Declined(f"{buffer.name} has other rows")
    return (rows,) if len(shape) == len(lead) else (rows, row_elements)


@dataclass(frozen=True)
class Rows:
    """What the second product reads.

    Attributes:
        stages: What makes it.
        buffer: Its rows.
        factor: One number a row that multiplies the product; None where there is none.
    """

    stages: Sequence[Stage]
    buffer: Var
    factor: Var | None = None


def multiply_shares(rows: Rows) -> Rows:
    """Return `rows` whose last stage multiplies, where it divides by one number a row; others as they are.

    p[i, n] = exp[i, n] / total[i]  ->  share[i] = 1 / total[i], p[i, n] = exp[i, n] * share[i]
    """
    if not rows.stages:
        return rows
    *others, last = rows.stages
    if last.combine is not None or not isinstance(last.value, tirx.Div):
        return rows
    whole, total = last.value.a, last.value.b
    if not _is_whole(whole, last, others) or not _is_factor(total, last, others):
        return rows
    made = next(stage for stage in others if stage.buffer.same_as(total.source))
    shape, dtype = shape_of(made.buffer), dtype_of(made.buffer)
    share, row = tirx.decl_buffer(shape, dtype, "share"), [axis.var for axis in made.spatial]
    shares = Stage(share, made.spatial, (), tirx.const(1, dtype) / tirx.BufferLoad(made.buffer, row))
    product = replace(last, value=whole * tirx.BufferLoad(share, list(total.indices)))
    return Rows([*others, shares, product], rows.buffer)


def defer_factor(rows: Rows) -> Rows:
    """Return `rows` without the last stage, `p[i, n] = exp[i, n] * scale[i]`, whose factor then comes behind the
    product, where rows are shorter; with another last stage, or none, as they are.

    sum over n of (exp[i, n] * scale[i]) * v[n]  =  (sum over n of exp[i, n] * v[n]) * scale[i]
    """
    if not rows.stages:
        return rows
    *others, last = rows.stages
    if last.combine is not None or not isinstance(last.value, tirx.Mul):
        return rows
    for whole, factor in ((last.value.a, last.value.b), (last.value.b, last.value.a)):
        if _is_whole(whole, last, others) and _is_factor(factor, last, others):
            return Rows(others, whole.source, factor.source)
    return rows


def _is_whole(load: Expr, stage: Stage, made: Sequence[Stage]) -> bool:
    return _is_made(load, made) and all(map(is_at, load.indices, stage.spatial))


def _is_factor(load: Expr, stage: Stage, made: Sequence[Stage]) -> bool:
    """Return whether `load` is of one number a row."""
    *lead, _ = stage.spatial
    extents = tuple(axis.extent for axis in lead)
    if not _is_made(load, made) or shape_of(load.source) not in (extents, (*extents, 1)):
        return False
    return all(map(is_at, load.indices[: len(lead)], lead))


def _is_made(load: Expr, made: Sequence[Stage]) -> bool:
    return isinstance(load, TensorLoad) and any(load.source.same_as(other.buffer) for other in made)
