"""How a convolution is computed: the sum over its taps, or Winograd's method where it applies and is estimated to be
faster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tvm import relax

from backends.cpu.kernels.conv2d.winograd import plan as winograd
from backends.cpu.kernels.depthwise.lower import has_narrow_groups
from backends.cpu.kernels.shared.arithmetic import BFLOAT16, FLOAT32, Arithmetic, arithmetic_of
from backends.cpu.kernels.shared.blocking import blocking_space, choose_blocking
from backends.cpu.kernels.shared.contraction import Blocking
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.window import Window
from backends.cpu.machine import Machine
from backends.tensorir.roles import Roles
from backends.tensorir.space import Space
from backends.tensorir.stages import dtype_of, shape_of


def conv2d_space(roles: Roles, machine: Machine, threads: int) -> Space[Blocking | winograd.WinogradPlan]:
    """Return the blockings of the sum, and the plans of Winograd's method where it applies."""
    data, packed = roles.operands
    window, arithmetic = Window.from_annotation(roles.attrs["window"]), arithmetic_of(dtype_of(data), machine)
    sizes = (window, shape_of(data), shape_of(packed)[0], roles.shape[3], machine.vector_lanes)
    sums = blocking_space(extents_of(*sizes, arithmetic), machine, threads)
    shape = winograd_shape(*sizes) if arithmetic is FLOAT32 else None
    best = winograd.plan_winograd(shape, machine, threads) if shape else None
    if shape is None or best is None:
        return Space(sums.default, sums.every)

    def every() -> Iterator[Blocking | winograd.WinogradPlan]:
        yield from sums
        yield from winograd.plans(shape, machine, threads)

    return Space(best if best.cycles < sums.default.cycles else sums.default, every)


def prefers_bfloat16(call: relax.Call, machine: Machine, threads: int) -> bool:
    """Return whether a float32 `nn.conv2d` with constant weights has a form in bfloat16 that is estimated to take no
    longer than Winograd's in float32."""
    data, weight = call.args
    attrs = call.attrs
    if attrs.data_layout != "NHWC" or attrs.kernel_layout != "OIHW":
        return False
    channels, depth, *kernel = (int(n) for n in weight.ty.shape)
    window, groups, lanes = Window.of(attrs, (kernel[0], kernel[1])), int(attrs.groups), machine.vector_lanes
    if depth < lanes and has_narrow_groups(weight.ty.shape, groups, lanes):
        return False
    image = tuple(int(n) for n in data.ty.shape)
    if groups == 1 and image[3] < lanes:  # the first layer, which reads float32 planes as they lie
        return False
    shape = winograd_shape(window, image, groups, channels, lanes)
    plan = winograd.plan_winograd(shape, machine, threads) if shape else None
    extents = extents_of(window, image, groups=groups, channels=channels, lanes=lanes, arithmetic=BFLOAT16)
    return plan is None or choose_blocking(extents, machine, threads).cycles <= plan.cycles


def extents_of(
    window: Window, image: Sequence[int], groups: int, channels: int, lanes: int, arithmetic: Arithmetic
) -> Extents:
    """Return the sizes of the sum of a convolution of an N, H, W, C image."""
    batch, height, width, all_channels = image
    (out_height, out_width), (kh, kw) = window.output(height, width), window.kernel
    depth, merged = all_channels // groups, window.merges(groups)
    return Extents(
        outer=batch, groups=groups, height=out_height, width=out_width, channels=channels // groups,
        taps=(kh,) if merged else (kh, kw), depth=kw * depth if merged else depth, lanes=lanes,
        input_bytes=arithmetic.bytes * height * width * all_channels, step=arithmetic.step,
        per_cycle=arithmetic.per_cycle,
    )  # fmt: skip


def winograd_shape(
    window: Window, image: Sequence[int], groups: int, channels: int, lanes: int
) -> winograd.Shape | None:
    """Return the sizes of a convolution for Winograd's method; None where it is none for it."""
    if not winograd.applies(window.kernel, window.strides, window.dilation, groups):
        return None
    (batch, height, width, depth), (top, left, *_) = image, window.padding
    out_height, out_width = window.output(height, width)
    return winograd.Shape(
        batch=batch, height=height, width=width, depth=depth, out_height=out_height, out_width=out_width,
        channels=channels, top=top, left=left, lanes=lanes,
    )  # fmt: skip
