"""Where operands in bfloat16 are faster on a CPU that multiplies pairs of them in one instruction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import relax

from backends.cpu.bfloat16 import fills_vectors
from backends.cpu.kernels.shared.arithmetic import BFLOAT16
from backends.cpu.kernels.shared.blocking import choose_blocking
from backends.cpu.kernels.shared.convolution.sum_over_taps import taps_extents
from backends.cpu.kernels.shared.convolution.winograd_plan import plan_winograd, winograd_shape
from backends.cpu.kernels.shared.lowering.operands import has_narrow_groups
from backends.cpu.kernels.shared.window import Window
from backends.cpu.machine import Machine


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
        return plan is None or choose_blocking(extents, self.machine, self.threads).cycles <= plan.cycles

    def stays_near(self, size: int) -> bool:
        """Return whether L2 holds it."""
        return size <= self.machine.l2_bytes
