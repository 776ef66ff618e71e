"""What random tests of kernels draw: sizes, epilogues, vector widths and thread counts."""

from __future__ import annotations

from hypothesis import Phase, settings
from hypothesis import strategies as st

from backends.cpu.machine import Machine
from tests.backends.cpu.kernels.anchored import EPILOGUES, TARGETS

# Shrinking an example compiles hundreds of kernels; the one found is small enough.
EXAMPLES = settings(max_examples=8, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
extents = st.sampled_from([1, 2, 3, 5, 7, 8, 13, 16, 17, 19, 31, 33, 48, 65])
targets = st.sampled_from(TARGETS)
threads = st.integers(1, 3)
MACHINE = Machine(vector_lanes=16, vector_registers=32, l1_bytes=32 << 10, l2_bytes=1 << 20, l3_bytes=32 << 20)
seeds = st.integers(0, 10**6)
pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))
paddings = st.tuples(*[st.integers(0, 3)] * 4)  # top, left, bottom, right
images = st.tuples(st.integers(1, 2), st.integers(1, 14), st.integers(1, 30))
# (groups, input channels per group, output channels per group)
channel_counts = st.tuples(st.sampled_from([1, 1, 1, 2, 3]), *[st.sampled_from([1, 2, 3, 5, 16, 17, 24, 33])] * 2)


@st.composite
def epilogues(draw: st.DrawFn) -> tuple[str, ...]:
    """Draw up to four steps; `regroup` moves rows and can only be the last, `fork` makes a second output."""
    steps = draw(st.lists(st.sampled_from(EPILOGUES[:-2]), max_size=3))
    if steps and draw(st.booleans()):
        steps.insert(draw(st.integers(0, len(steps) - 1)), "fork")
    return (*steps, *(["regroup"] if draw(st.booleans()) else []))
