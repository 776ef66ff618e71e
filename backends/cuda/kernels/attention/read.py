"""Reads a kernel of two products with a softmax, or what is elementwise, between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Var

from backends.cuda.kernels.affine import analyzer_below
from backends.cuda.kernels.attention.logits import left_out
from backends.cuda.kernels.attention.region import AttentionRegion
from backends.cuda.kernels.device_arithmetic import NARROW, in_float32
from backends.cuda.kernels.launch import check_sizes
from backends.cuda.kernels.matmul.read import MatrixProduct, epilogue_of_sums, read_matrices
from backends.tensorir.softmax_rows import is_bounded_softmax
from backends.tensorir.stages import Stage, dtype_of, loads, output_buffers, read_stages, shape_of
from fusion.declined import Declined

Expr = Any


def read_attention(func: tirx.PrimFunc) -> AttentionRegion:
    """Return the parts of `func`.

    Raises:
        Declined: It has other reductions than two products, and a softmax or none, what stands between is not
            elementwise, the products have other batches and rows, or multiply other numbers than float32, float16 or
            bfloat16.
    """
    stages = read_stages(func)
    outputs = output_buffers(func, stages)
    reductions = [stage for stage in stages if stage.combine is not None]
    if len(reductions) not in (2, 4):
        raise Declined("it has not two reductions, which are products, nor a maximum and a sum between them")
    if any(0 in shape_of(stage.buffer) for stage in stages):
        raise Declined("it is empty")
    first, *_, second = reductions
    between = _between(stages, first)
    before = {stage.buffer: stage for stage in stages if stage.combine is None and stage not in between}
    scores, weighted = read_matrices(first, before), read_matrices(second, before)
    _check_operands(scores, weighted)
    check_sizes(second.buffer, *func.params)
    own = between[: between.index(second)]
    beside = _made_beside(own, before)
    made, *wide = in_float32([first, *beside, *own], ())
    rows = wide[next((at for at, stage in enumerate(wide) if stage.combine is not None), len(wide)) :]
    elementwise = wide[: len(wide) - len(rows)]
    logits = elementwise[-1] if len(elementwise) > len(beside) else made
    if not weighted.left.buffer.same_as(between[between.index(second) - 1].buffer):
        raise Declined("the second product does not read the last of what stands before it")
    is_bounded = bool(rows) and is_bounded_softmax(rows, logits.buffer)
    if shape_of(logits.buffer) != shape_of(first.buffer):
        raise Declined("the scores change their shape")
    sums, epilogue = epilogue_of_sums([stage for stage in between[between.index(second) :]], second, outputs)
    region = AttentionRegion(
        scores=scores, weighted=weighted, made=made.buffer, logits=logits,
        stages={stage.buffer: stage for stage in elementwise}, sums=sums, epilogue=epilogue,
        is_bounded=is_bounded, is_softmax=bool(rows),
    )  # fmt: skip
    if not rows:
        return region
    place = [Var(name, "int64") for name in ("batch", "row", "key")]
    return replace(region, is_masked=left_out(region, place) is not None)


def _between(stages: Sequence[Stage], first: Stage) -> list[Stage]:
    """Return the stages that depend on a product."""
    made, found = {first.buffer}, []
    for stage in stages:
        if stage is not first and made.intersection(load.source for load in loads(stage.value)):
            made.add(stage.buffer)
            found.append(stage)
    return found


def _made_beside(between: Sequence[Stage], before: Mapping[Var, Stage]) -> list[Stage]:
    """Return the stages of which a mask is made that those between the products read, in order."""
    read, asked = set[Var](), [load.source for stage in between for load in loads(stage.value)]
    while asked:
        source = asked.pop()
        if source in before and source not in read:
            read.add(source)
            asked += [load.source for load in loads(before[source].value)]
    return [stage for buffer, stage in before.items() if buffer in read]


def _check_operands(scores: MatrixProduct, weighted: MatrixProduct) -> None:
    """Raise where the rows of the second product are not those of the first, in their order."""
    operands = (scores.left, scores.right, weighted.right)
    dtypes = {dtype_of(operand.buffer) for operand in operands}
    if len(dtypes) != 1 or not dtypes <= NARROW | {"float32"}:
        raise Declined(f"it multiplies {', '.join(sorted(dtypes))}")
    if (weighted.batches, weighted.rows, weighted.depth) != (scores.batches, scores.rows, scores.columns):
        raise Declined("the products have other batches, rows or keys")
    weights = weighted.left
    batch, row, key = weights.batch, weights.outer, weights.depth
    analyzer = analyzer_below([(batch, scores.batches), (row, scores.rows), (key, scores.columns)])
    place = (batch * scores.rows + row) * scores.columns + key
    is_plain = weights.condition is None and prod(shape_of(weights.buffer)) == prod(
        (scores.batches, scores.rows, scores.columns)
    )
    if not is_plain or not analyzer.can_prove_equal(weights.position, place):
        raise Declined("the weights of the second product lie in another order than the scores")
