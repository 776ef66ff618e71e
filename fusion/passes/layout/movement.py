"""What moving data costs."""

_BYTES_PER_CYCLE = 3.0  # what a transpose reads and writes; 2.5 to 5 measured
_TRANSPOSE_CYCLES = 10_000  # a kernel more, its fork and join included


def move_cycles(elements: int) -> float:
    """Return an estimate for a transpose of float32 elements, on two cores."""
    return 2 * 4 * elements / _BYTES_PER_CYCLE + _TRANSPOSE_CYCLES
