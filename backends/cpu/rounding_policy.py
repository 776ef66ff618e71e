"""Where operands in bfloat16 are faster on a CPU that multiplies pairs of them in one instruction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tvm import relax
from tvm.ir import GenericConst

from backends.cpu.bfloat16 import fills_vectors
from backends.cpu.kernels.shared.arithmetic import BFLOAT16
from backends.cpu.kernels.shared.blocking import choose_blocking
from backends.cpu.kernels.shared.convolution.sum_over_taps import taps_extents
from backends.cpu.kernels.shared.convolution.winograd_plan import plan_winograd, winograd_shape
from backends.cpu.kernels.shared.extents import may_be_in_tiles
from backends.cpu.kernels.shared.lowering.operands import has_narrow_groups
from backends.cpu.kernels.shared.window import Window
from backends.cpu.machine import Machine
from fusion.bindings import call_name
from fusion.shapes import known_shape, static_shape


@dataclass(frozen=True)
class CpuRounding:
    """A `RoundingPolicy`."""

    machine: Machine
    threads: int

    def takes_batches(self, right: Sequence[int]) -> bool:
        """Return whether the rows of the right operand fill vectors."""
        return fills_vectors(right)

    def takes_convolution(self, call: relax.Call) -> bool:
        """Return whether a float32 `nn.conv2d` with constant weights has a form in bfloat16 that is estimated to take
        no longer than Winograd's in float32."""
        data, weight = call.args
        attrs = call.attrs
        if attrs.data_layout != "NHWC" or attrs.kernel_layout != "OIHW":
            return False
        channels, depth, *kernel = (int(n) for n in weight.ty.shape)
        window, groups, lanes = Window.of(attrs, (kernel[0], kernel[1])), int(attrs.groups), self.machine.vector_lanes
        if depth < lanes and has_narrow_groups(weight.ty.shape, groups, lanes):
            return False
        image = tuple(int(n) for n in data.ty.shape)
        if groups == 1 and image[3] < lanes:  # the first layer, which reads float32 planes as they lie
            return False
        shape = winograd_shape(window, image, groups, channels, lanes)
        plan = plan_winograd(shape, self.machine, self.threads) if shape else None
        extents = taps_extents(window, image, groups=groups, channels=channels, lanes=lanes, arithmetic=BFLOAT16)
        extents = may_be_in_tiles(extents, self.machine)
        return plan is None or choose_blocking(extents, self.machine, self.threads).cycles <= plan.cycles

    def why_not_narrow(self, call: relax.Call) -> str:
        """Return why no kernel multiplies these numbers as they are, or not as fast as float32: what multiplies tiles
        takes float32 apart for them, and multiplies bfloat16 faster in tiles alone."""
        left, right = call.args
        dtype, weights = str(left.ty.dtype.dtype), known_shape(right)
        if dtype != "bfloat16" or not self.machine.dot_bfloat16:
            return f"no instruction multiplies {dtype}"
        if weights is None or len(weights) < 2 or left.ty.ndim < 2:
            return "it multiplies a vector, or what has no known shape"
        if not isinstance(right, GenericConst) and not (call_name(call) == "matmul" and self.takes_batches(weights)):
            return "its right operand is no constant, and has no rows that fill vectors"
        if "transpose" in call_name(call):
            return "transposed convolutions have no kernel of it"
        if self.machine.tiles and not self._gains(call):
            return "tiles multiply float32 no slower"
        return ""

    def _gains(self, call: relax.Call) -> bool:
        """Return whether a machine with tiles multiplies bfloat16 in these, or waits for weights that L2 does not hold,
        where only the run knows how many rows there are."""
        rows, weights = call.args
        if not isinstance(weights, GenericConst):
            return False
        if known_shape(rows) is None:
            return not self.stays_near(4 * prod(static_shape(weights)))
        return call_name(call) == "matmul" or int(call.attrs.groups) == 1

    def stays_near(self, size: int) -> bool:
        """Return whether L2 holds it."""
        return size <= self.machine.l2_bytes
