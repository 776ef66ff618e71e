"""What a sequence is estimated to take on one thread, and whether that is worth waking others."""

from __future__ import annotations

import math

from backends.onednn.operation import SRC, WEIGHTS, Operation, PrimitiveSequence

_FLOPS, _BYTES = 100e3, 20e3
"""What one thread computes, and moves between primitives, in a microsecond."""
_SHARED_US = 200.0
"""What is shorter takes longer on two threads: that they begin and end to sleep takes 80 us. Of 21 sequences of
products, convolutions and rows of 25 to 676 us that break even near 210 us this sets all on the side that is faster
(two vCPUs of a Granite Rapids, calls one after the other). It is the same for more threads, which was not measured:
they save at most twice what two save, nearly all of one thread's time, and more of them are to be woken and awaited."""


def is_worth_sharing(sequence: PrimitiveSequence) -> bool:
    """Return whether several threads are to run a sequence."""
    return sum(map(_estimate_us, sequence.operations)) >= _SHARED_US


def _estimate_us(operation: Operation) -> float:
    """Return what one thread takes for a primitive at least, with what follows it."""
    operands = operation.all_operands()
    elements = sum(math.prod(each.shape) for each in operands.values()) + math.prod(operation.shape)
    return max(2 * math.prod(operation.shape) * _depth(operation) / _FLOPS, 4 * elements / _BYTES)


def _depth(operation: Operation) -> int:
    """Return how many products are summed up for an element of the result."""
    operands = operation.all_operands()
    if operation.primitive == "matmul":
        return operands[SRC].shape[-1]
    if operation.primitive == "convolution":  # groups of it are an axis of the weights
        return math.prod(operands[WEIGHTS].shape) // operation.shape[1]
    return 0
