"""A convolution as cuDNN's graph of operations: the convolution, + residual, + bias, the maximum.

    image, weight -> CONVOLUTION_FORWARD -> float32 -> ADD(residual) -> float32 -> ADD(bias) -> float32 -> RELU

What is between is virtual: it is in no memory. This is the pattern that its engines of several operations have
("ConvolutionBiasActivation"); 9.28.1 has none for a residual or a maximum without a bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from backends.cuda.libraries.cudnn.api import (
    ADD,
    CROSS_CORRELATION,
    DATA_TYPES,
    PROPAGATE_NAN,
    RELU,
    CuDnn,
    Descriptors,
)
from backends.cuda.libraries.cudnn.convolution import LibraryConvolution

IMAGE, WEIGHT, RESULT, BIAS, RESIDUAL = range(1, 6)
"""Unique identifiers of the tensors in memory; those of virtual ones come behind."""
ALIGNMENT = 16
"""Bytes at a multiple of which callers' tensors begin at least."""
_FLOAT = DATA_TYPES["float32"]


def ids_of(convolution: LibraryConvolution) -> tuple[int, ...]:
    """Return the identifiers of a convolution's tensors, in the order of their addresses."""
    added = [BIAS] * convolution.has_bias + [RESIDUAL] * convolution.has_residual
    return (IMAGE, WEIGHT, RESULT, *added)


def write_graph(library: CuDnn, descriptors: Descriptors, convolution: LibraryConvolution) -> int:
    """Return the descriptor of the graph.

    Raises:
        FusionError: The library refuses it.
    """
    return _Writer(library, descriptors, convolution).write()


@dataclass
class _Writer:
    library: CuDnn
    descriptors: Descriptors
    convolution: LibraryConvolution
    _operations: list[int] = field(default_factory=list, init=False)

    def write(self) -> int:
        convolution, make = self.convolution, self.descriptors.make
        added = [RESIDUAL] * convolution.has_residual + [BIAS] * convolution.has_bias
        steps = len(added) + convolution.has_relu
        at = self._value(steps)
        self._operations.append(
            make(
                "OPERATION_CONVOLUTION_FORWARD",
                OPERATION_CONVOLUTION_FORWARD_CONV_DESC=[self._window()],
                OPERATION_CONVOLUTION_FORWARD_X=[self._tensor(IMAGE, convolution.dtype)],
                OPERATION_CONVOLUTION_FORWARD_W=[self._tensor(WEIGHT, convolution.dtype)],
                OPERATION_CONVOLUTION_FORWARD_Y=[at],
                OPERATION_CONVOLUTION_FORWARD_ALPHA=[1.0],
                OPERATION_CONVOLUTION_FORWARD_BETA=[0.0],
            )
        )
        for each in added:
            steps -= 1
            at = self._pointwise(at, self._value(steps), ADD, self._tensor(each, convolution.dtype))
        if convolution.has_relu:
            self._pointwise(at, self._value(0), RELU)
        return make("OPERATIONGRAPH", OPERATIONGRAPH_HANDLE=[self.library.handle], OPERATIONGRAPH_OPS=self._operations)

    def _window(self) -> int:
        convolution = self.convolution
        return self.descriptors.make(
            "CONVOLUTION",
            CONVOLUTION_COMP_TYPE=[_FLOAT],
            CONVOLUTION_CONV_MODE=[CROSS_CORRELATION],
            CONVOLUTION_SPATIAL_DIMS=[2],
            CONVOLUTION_DILATIONS=convolution.dilations,
            CONVOLUTION_FILTER_STRIDES=convolution.strides,
            CONVOLUTION_PRE_PADDINGS=convolution.before,
            CONVOLUTION_POST_PADDINGS=convolution.after,
        )

    def _pointwise(self, of: int, to: int, mode: int, other: int | None = None) -> int:
        """Write an operation, and return `to`, which is made."""
        nan = {"POINTWISE_NAN_PROPAGATION": [PROPAGATE_NAN]} if mode == RELU else {}
        described = self.descriptors.make("POINTWISE", POINTWISE_MODE=[mode], POINTWISE_MATH_PREC=[_FLOAT], **nan)
        second = {} if other is None else {"OPERATION_POINTWISE_BDESC": [other]}
        self._operations.append(
            self.descriptors.make(
                "OPERATION_POINTWISE",
                OPERATION_POINTWISE_PW_DESCRIPTOR=[described],
                OPERATION_POINTWISE_XDESC=[of],
                OPERATION_POINTWISE_YDESC=[to],
                **second,
            )
        )
        return to

    def _value(self, steps: int) -> int:
        """Return what has so many operations behind it: virtual, or the result."""
        if steps:
            return self._tensor(RESIDUAL + steps, "float32", is_virtual=True)
        return self._tensor(RESULT, self.convolution.dtype)

    def _tensor(self, identifier: int, dtype: str, *, is_virtual: bool = False) -> int:
        extents = self._extents(identifier)
        return self.descriptors.make(
            "TENSOR",
            TENSOR_UNIQUE_ID=[identifier],
            TENSOR_DATA_TYPE=[DATA_TYPES[dtype]],
            TENSOR_BYTE_ALIGNMENT=[ALIGNMENT],
            TENSOR_DIMENSIONS=extents,
            TENSOR_STRIDES=_channels_last(extents),
            TENSOR_IS_VIRTUAL=[is_virtual],
        )

    def _extents(self, identifier: int) -> Sequence[int]:
        """Return N, C, H, W of a tensor."""
        convolution = self.convolution
        if identifier == IMAGE:
            return (convolution.images, convolution.channels, *convolution.size)
        if identifier == WEIGHT:
            return (convolution.made, convolution.channels // convolution.groups, *convolution.taps)
        if identifier == BIAS:
            return (1, convolution.made, 1, 1)
        return (convolution.images, convolution.made, *convolution.made_size)


def _channels_last(extents: Sequence[int]) -> Sequence[int]:
    """Return the steps of N, C, H, W whose channels are innermost."""
    _, channels, height, width = extents
    return (height * width * channels, 1, width * channels, channels)
