"""Reads a kernel that is one call of cuDNN: a convolution of images in memory, and what is behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Call, TensorLoad, Var
from tvm.sym import Analyzer

from backends.cuda.kernels.affine import analyzer_over
from backends.cuda.kernels.matmul.read import epilogue_of_sums, read_factors
from backends.cuda.libraries.call import DeviceLibraryCall
from backends.cuda.libraries.cudnn.convolution import LibraryConvolution
from backends.cuda.libraries.epilogue import LibraryEpilogue, read_epilogue
from backends.cuda.libraries.mark import parameter_of
from backends.cuda.libraries.sums import DTYPES
from backends.tensorir.emit import int64
from backends.tensorir.inlining import is_branch
from backends.tensorir.stages import (
    Axis,
    Stage,
    dtype_of,
    item_bytes_of,
    output_buffers,
    read_stages,
    shape_of,
    substitute,
)
from fusion.declined import Declined

Expr = Any
_NO_CONVOLUTION = "it is no convolution of images"
_ALIGNED = 16
"""Bytes, of which the channels of images and results are multiples where tensor cores take them: NVIDIA's deep
learning performance guide, "Tensor Core Requirements". 9.28.1 ranks others first for 13 channels by 17, and for 3."""


def read_convolution_call(func: tirx.PrimFunc, *, tfloat32: bool) -> DeviceLibraryCall:
    """Return the call that computes `func`.

    Raises:
        Declined: It is no convolution, its tensors do not lie as images in memory, what is behind is something else, or
            cuDNN has no engines for it that it ranks.
    """
    stages = read_stages(func)
    outputs = output_buffers(func, stages)
    anchors = [stage for stage in stages if stage.combine is not None]
    if len(anchors) != 1 or (len(anchors[0].spatial), len(anchors[0].reduce)) != (4, 3):
        raise Declined(_NO_CONVOLUTION)
    (anchor,) = anchors
    others = {stage.buffer: stage for stage in stages if stage is not anchor}
    image, weight = read_factors(anchor, others)
    window = _Window.of(anchor, image, weight)
    epilogue = read_epilogue(*_sums(stages, anchor, outputs))
    convolution = window.convolution(tfloat32, epilogue)
    tensors = [window.image, window.weight, epilogue.result, *epilogue.added]
    return DeviceLibraryCall(convolution, tuple(parameter_of(func, tensor) for tensor in tensors))


def _sums(stages: Sequence[Stage], anchor: Stage, outputs: set[Var]) -> tuple[Var, int, Any]:
    """Return the sums, how many a row of them has, and what is behind."""
    sums, epilogue = epilogue_of_sums(stages, anchor, outputs)
    return sums, int(anchor.spatial[3].extent), epilogue


@dataclass(frozen=True)
class _Window:
    """Where a convolution reads.

    Attributes:
        made: Extents of its results: n, y, x, o.
        taps: Of rows, of columns, and channels of a group.
        steps: For rows and columns the stride, the dilation and what is before an image.
    """

    image: Var
    weight: Var
    made: tuple[int, ...]
    taps: tuple[int, ...]
    steps: tuple[tuple[int, int, int], ...]

    @classmethod
    def of(cls, anchor: Stage, image: Expr, weight: Expr) -> _Window:
        n, y, x, o = anchor.spatial
        ry, rx, rc = anchor.reduce
        analyzer = analyzer_over(anchor.spatial + anchor.reduce)
        condition = None
        if isinstance(image, Call) and is_branch(image):
            condition, image, otherwise = image.args
            if not isinstance(otherwise, tirx.FloatImm) or otherwise.value != 0:
                raise Declined("images are padded with another number than zero")
        if not all(isinstance(each, TensorLoad) and len(each.indices) == 4 for each in (image, weight)):
            raise Declined(_NO_CONVOLUTION)
        made, taps = (tuple(int(axis.extent) for axis in axes) for axes in (anchor.spatial, anchor.reduce))
        # those of groups lie r, s, c, o: cuDNN's engines are documented for neighbours in c alone
        if shape_of(weight.source) != (made[3], *taps):
            raise Declined("weights do not lie channels last, as those of groups do not")
        channels = shape_of(image.source)[3]
        group = made[3] // max(channels // taps[2], 1)
        first = int64(0) if channels == taps[2] else tirx.floordiv(o.var, int64(group)) * int64(taps[2])
        at = image.indices
        sizes = shape_of(image.source)[1:3]
        steps = tuple(
            _steps(at[1 + axis], place, tap, sizes[axis], analyzer)
            for axis, (place, tap) in enumerate(((y, ry), (x, rx)))
        )
        lies = [n.var, *(_position(*each) for each in zip((y, x), (ry, rx), steps, strict=True)), first + rc.var]
        read = zip((*at, *weight.indices), (*lies, o.var, ry.var, rx.var, rc.var), strict=True)
        if not all(analyzer.can_prove_equal(one, other) for one, other in read):
            raise Declined(_NO_CONVOLUTION)
        _check_padding(condition, lies[1:3], sizes, analyzer)
        return cls(image.source, weight.source, made, taps, steps)

    def convolution(self, tfloat32: bool, epilogue: LibraryEpilogue) -> LibraryConvolution:
        images, height, width, channels = shape_of(self.image)
        dtype = dtype_of(self.image)
        if dtype not in DTYPES or dtype_of(self.weight) != dtype or epilogue.dtype != dtype:
            raise Declined("cuDNN is given tensors of one type")
        if dtype == "float32" and not tfloat32:
            raise Declined("cuDNN ranks no engine for float32 that it does not round to tfloat32")
        if any(channels * item_bytes_of(self.image) % _ALIGNED for channels in (self.taps[2], self.made[3])):
            raise Declined(f"cuDNN ranks tensor cores behind others for channels that {_ALIGNED} bytes do not divide")
        if epilogue.has_gelu:
            raise Declined("cuDNN is given no GELU")
        if (epilogue.has_relu or epilogue.residual is not None) and epilogue.bias is None:
            raise Declined("cuDNN has no residual or maximum without a bias")
        after = tuple(
            _after(size, tap, made, step)
            for size, tap, made, step in zip((height, width), self.taps, self.made[1:3], self.steps, strict=False)
        )
        strides, dilations, before = ((each[0], each[1]) for each in zip(*self.steps, strict=True))
        made = LibraryConvolution(
            images=images, size=(height, width), channels=channels, made=self.made[3],
            taps=(self.taps[0], self.taps[1]), strides=strides, dilations=dilations, before=before,
            after=(after[0], after[1]), groups=channels // self.taps[2], dtype=dtype, tfloat32=dtype == "float32",
            has_bias=epilogue.bias is not None, has_residual=epilogue.residual is not None, has_relu=epilogue.has_relu,
        )  # fmt: skip
        if made.made_size != self.made[1:3]:
            raise Declined(_NO_CONVOLUTION)
        return made


def _steps(index: Expr, place: Axis, tap: Axis, size: int, analyzer: Analyzer) -> tuple[int, int, int]:
    """Return the stride, the dilation, and what is before an image, as an index of it tells them, if it is one.

    Of one tap the dilation is 1; of one place the stride is what leaves room for no other.
    """

    def at(first: int, second: int) -> int:
        known = analyzer.simplify(substitute(index, {place.var: int64(first), tap.var: int64(second)}))
        if not isinstance(known, tirx.IntImm):
            raise Declined(_NO_CONVOLUTION)
        return int(known.value)

    begin = at(0, 0)
    dilation = at(0, 1) - begin if tap.extent != 1 else 1
    stride = at(1, 0) - begin if place.extent != 1 else max(size - begin - dilation * (int(tap.extent) - 1), 1)
    found = stride, dilation, -begin
    if found[0] < 1 or found[1] < 1 or found[2] < 0:
        raise Declined(_NO_CONVOLUTION)
    return found


def _position(place: Any, tap: Any, steps: tuple[int, int, int]) -> Expr:
    stride, dilation, before = steps
    return place.var * int64(stride) + tap.var * int64(dilation) - int64(before)


def _after(size: int, taps: int, made: int, steps: tuple[int, int, int]) -> int:
    """Return what is 0 behind an image: as before it, if there are as many results so, which more engines take;
    otherwise as much as the last window reaches."""
    stride, dilation, before = steps
    if (size + 2 * before - dilation * (taps - 1) - 1) // stride + 1 == made:
        return before
    return max((made - 1) * stride + dilation * (taps - 1) + 1 - size - before, 0)


def _check_padding(condition: Expr, positions: Sequence[Expr], sizes: Sequence[int], analyzer: Analyzer) -> None:
    """Check that zeros are read outside of the image, and there alone.

    Raises:
        Declined: It cannot be told.
    """
    inside = [reach for at, size in zip(positions, sizes, strict=True) for reach in (at, int64(size - 1) - at)]
    asked = [] if condition is None else list(_reaches(condition))
    for each in asked:
        if not any(analyzer.can_prove_equal(each, reach) for reach in inside):
            raise Declined("images are zero elsewhere than outside of them")
    for reach in inside:
        is_asked = any(analyzer.can_prove_equal(each, reach) for each in asked)
        if not is_asked and not analyzer.can_prove(reach >= int64(0)):
            raise Declined("images are read outside of them")


def _reaches(condition: Expr) -> Iterator[Expr]:
    """Yield what has to be at least 0, all of it, for a condition to hold."""
    if isinstance(condition, tirx.And):
        yield from _reaches(condition.a)
        yield from _reaches(condition.b)
    elif isinstance(condition, (tirx.LE, tirx.LT)):
        yield condition.b - condition.a - int64(isinstance(condition, tirx.LT))
    elif isinstance(condition, (tirx.GE, tirx.GT)):
        yield condition.a - condition.b - int64(isinstance(condition, tirx.GT))
    else:
        raise Declined("images are zero by another condition than where they end")
