"""An attention as its kernel has it: two products with a softmax between them, or with an activation in its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tvm.ir import Var

from backends.cuda.kernels.matmul.operand import MatrixOperand
from backends.cuda.kernels.matmul.read import MatrixProduct
from backends.cuda.kernels.pointwise.read import ElementwiseRegion
from backends.tensorir.inlining import operation_cost
from backends.tensorir.stages import Stage, item_bytes_of, loads, shape_of


@dataclass(frozen=True)
class AttentionRegion:
    """`sums[b, i, c] = sum over n of softmax(logits[b, i, n]) * values[b, n, c]`, and what is made of the sums; without
    a softmax `sums[b, i, c] = sum over n of logits[b, i, n] * values[b, n, c]`, as the two layers of an MLP are.

    Attributes:
        scores: The product of queries and keys, whose rows are those of `sums` and whose columns are keys.
        weighted: The second product, of weights and values: its columns are channels, its depth are keys.
        made: The buffer of the scores, as `logits` read them.
        logits: What the softmax is of, or the values are multiplied with: a stage of the shape of the scores, by
            elementwise stages of them.
        stages: Those stages, by what they make.
        sums: The second product in float32, of the shape that the graph has.
        epilogue: What is stored of it.
        is_bounded: Whether rows whose logits are all -inf have weights of 0.
        is_softmax: Whether there is a softmax of the logits.
        is_masked: Whether a mask chooses -inf in place of scores.
    """

    scores: MatrixProduct
    weighted: MatrixProduct
    made: Var
    logits: Stage
    stages: Mapping[Var, Stage]
    sums: Var
    epilogue: ElementwiseRegion
    is_bounded: bool
    is_softmax: bool = True
    is_masked: bool = False

    @property
    def values(self) -> MatrixOperand:
        """The right operand of the second product; its `outer` are channels, its `depth` are keys."""
        return self.weighted.right

    @property
    def operations(self) -> int:
        """What the elementwise stages take of each score, in simple operations."""
        return sum(operation_cost(stage.value) for stage in self.stages.values())

    @cached_property
    def masks(self) -> tuple[Var, ...]:
        """What the elementwise stages read that differs by row and key, as masks of numbers that are added, or of
        booleans; what all rows have alike is not among them."""
        made = {self.made, *self.stages}
        read = {load.source: None for stage in self.stages.values() for load in loads(stage.value)}
        least = self.scores.rows * self.scores.columns
        return tuple(each for each in read if each not in made and prod(shape_of(each)) >= least)

    @property
    def mask_bytes(self) -> int:
        """Of what `masks` have for one score."""
        return sum(item_bytes_of(each) for each in self.masks)

    @property
    def held_mask_bytes(self) -> int:
        """Of all `masks` in memory, which batches may share."""
        return sum(item_bytes_of(each) * prod(shape_of(each)) for each in self.masks)

    @property
    def channels(self) -> int:
        """Extent of c."""
        return self.values.extent
