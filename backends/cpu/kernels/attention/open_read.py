"""Reads an attention with symbols: the stages that the static one has, and sizes that may be expressions."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from backends.cpu.kernels.attention.read import AttentionStages, read_attention
from backends.cpu.kernels.attention.softmax import find_softmax
from backends.tensorir.extents import Extent
from backends.tensorir.roles import Output, compose
from backends.tensorir.softmax_rows import SoftmaxForm, softmax_form
from backends.tensorir.stages import Stage, dims_of
from fusion.declined import Declined


@dataclass(frozen=True)
class OpenChain:
    """Sizes of [*batch, rows, depth] x [*batch, depth, keys], whose rows go on to [*batch, keys, channels]."""

    batch: tuple[Extent, ...]
    rows: Extent
    depth: int
    keys: Extent
    channels: int

    @staticmethod
    def of(stages: AttentionStages) -> OpenChain:
        """Return the sizes of `stages`.

        Raises:
            Declined: Only a call knows how many channels a head has, or all but the batch is known: then one batch is
                a static kernel.
        """
        *batch, rows, keys = dims_of(stages.scores.buffer)
        (step,) = stages.scores.reduce
        channels = dims_of(stages.values.buffer)[-1]
        if not isinstance(step.extent, int) or not isinstance(channels, int):
            raise Declined("only a call knows the channels of a head")
        if isinstance(rows, int) and isinstance(keys, int):
            raise Declined("its rows and keys are numbers")
        if not step.extent or not channels:
            raise Declined("the products are empty")
        return OpenChain(tuple(batch), rows, step.extent, keys, channels)


@dataclass(frozen=True)
class OpenAttention:
    """Two products with a softmax or element-wise work between.

    Attributes:
        scores, values: The products.
        entering: What the second one, or the softmax, reads for each element of the first.
        outputs: What is stored for each element of the second.
        softmax: The form of the softmax; None where there is none.
    """

    chain: OpenChain
    scores: Stage
    values: Stage
    entering: Output
    outputs: tuple[Output, ...]
    softmax: SoftmaxForm | None


def read_open_attention(func: tirx.PrimFunc) -> OpenAttention:
    """Return the parts of `func`.

    Raises:
        Declined: It has another form.
    """
    stages = read_attention(func)
    between = find_softmax(stages) if stages.rows else stages.weights
    (entering,) = compose(stages.scores.buffer, stages.epilogue, [between])
    behind = {stage.buffer for stage in (stages.values, *stages.behind)}
    outputs = compose(stages.values.buffer, stages.behind, [param for param in func.params if param in behind])
    return OpenAttention(
        chain=OpenChain.of(stages),
        scores=stages.scores,
        values=stages.values,
        entering=entering,
        outputs=outputs,
        softmax=softmax_form(stages.rows, between) if stages.rows else None,
    )
