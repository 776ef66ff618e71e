"""cuDNN's C API: the graph API of cuDNN 9 (its documentation, "Graphs"). Numbers are those of `cudnn_graph.h`, to which
a test holds them where the package is installed.

Not the older `cudnnConvolutionBiasActivationForward`: `cudnn_cnn.h` of 9.28.1 says that it is deprecated since
9.0 in favour of this one, which tells of each engine whether it rounds operands or sums, and answers without a
device.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from ctypes import POINTER, c_bool, c_float, c_int, c_int64, c_void_p
from dataclasses import dataclass
from typing import Any

from backends.cuda.libraries.cudnn.convolution import NAME
from backends.cuda.libraries.cudnn.library import PACKAGE
from backends.cuda.libraries.functions import ForeignApi, LibraryFunctions, OpenedOnce
from backends.cuda.packages import find_in_package
from backends.cuda.runtime.device import OpenDevice
from fusion.system.forks import Lock

DATA_TYPES = {"float32": 0, "float16": 2, "bfloat16": 9}
"""cudnnDataType_t of dtypes."""
CROSS_CORRELATION, ADD, RELU, PROPAGATE_NAN = 1, 0, 100, 1
"""cudnnConvolutionMode_t; cudnnPointwiseMode_t, two; cudnnNanPropagation_t."""
RANKED, FALLBACK = 3, 2
"""cudnnBackendHeurMode_t: HEUR_MODE_A and HEUR_MODE_FALLBACK."""
NOTES = {
    "TENSOR_CORE": 0, "DOWN_CONVERT_INPUTS": 1, "REDUCED_PRECISION_REDUCTION": 2, "FFT": 3, "NONDETERMINISTIC": 4,
    "WINOGRAD": 5,
}  # fmt: skip
"""cudnnBackendNumericalNote_t: what an engine does with numbers."""
KINDS = {
    "POINTWISE": 0, "CONVOLUTION": 1, "ENGINE": 2, "ENGINECFG": 3, "ENGINEHEUR": 4, "EXECUTION_PLAN": 5,
    "OPERATION_CONVOLUTION_FORWARD": 10, "OPERATION_POINTWISE": 13, "OPERATIONGRAPH": 15, "VARIANT_PACK": 16,
    "TENSOR": 17,
}  # fmt: skip
"""cudnnBackendDescriptorType_t."""


@dataclass(frozen=True)
class AttributeType:
    """A cudnnBackendAttributeType_t, and what its elements are."""

    number: int
    element: Any


_HANDLE, _DATA_TYPE, _BOOLEAN, _INT64 = (
    AttributeType(*each) for each in ((0, c_void_p), (1, c_int), (2, c_bool), (3, c_int64))
)
_FLOAT, _POINTER, _CONVOLUTION_MODE, _HEUR_MODE = (
    AttributeType(*each) for each in ((4, c_float), (6, c_void_p), (7, c_int), (8, c_int))
)
_NAN_PROPAGATION, _NOTE, _POINTWISE_MODE, _DESCRIPTOR = (
    AttributeType(*each) for each in ((10, c_int), (11, c_int), (14, c_int), (15, c_void_p))
)
ATTRIBUTES = {
    "POINTWISE_MODE": (0, _POINTWISE_MODE), "POINTWISE_MATH_PREC": (1, _DATA_TYPE),
    "POINTWISE_NAN_PROPAGATION": (2, _NAN_PROPAGATION),
    "CONVOLUTION_COMP_TYPE": (100, _DATA_TYPE), "CONVOLUTION_CONV_MODE": (101, _CONVOLUTION_MODE),
    "CONVOLUTION_DILATIONS": (102, _INT64), "CONVOLUTION_FILTER_STRIDES": (103, _INT64),
    "CONVOLUTION_POST_PADDINGS": (104, _INT64), "CONVOLUTION_PRE_PADDINGS": (105, _INT64),
    "CONVOLUTION_SPATIAL_DIMS": (106, _INT64),
    "ENGINEHEUR_MODE": (200, _HEUR_MODE), "ENGINEHEUR_OPERATION_GRAPH": (201, _DESCRIPTOR),
    "ENGINEHEUR_RESULTS": (202, _DESCRIPTOR), "ENGINECFG_ENGINE": (300, _DESCRIPTOR),
    "EXECUTION_PLAN_HANDLE": (400, _HANDLE), "EXECUTION_PLAN_ENGINE_CONFIG": (401, _DESCRIPTOR),
    "EXECUTION_PLAN_WORKSPACE_SIZE": (402, _INT64),
    "OPERATION_CONVOLUTION_FORWARD_ALPHA": (700, _FLOAT), "OPERATION_CONVOLUTION_FORWARD_BETA": (701, _FLOAT),
    "OPERATION_CONVOLUTION_FORWARD_CONV_DESC": (702, _DESCRIPTOR),
    "OPERATION_CONVOLUTION_FORWARD_W": (703, _DESCRIPTOR), "OPERATION_CONVOLUTION_FORWARD_X": (704, _DESCRIPTOR),
    "OPERATION_CONVOLUTION_FORWARD_Y": (705, _DESCRIPTOR),
    "OPERATION_POINTWISE_PW_DESCRIPTOR": (750, _DESCRIPTOR), "OPERATION_POINTWISE_XDESC": (751, _DESCRIPTOR),
    "OPERATION_POINTWISE_BDESC": (752, _DESCRIPTOR), "OPERATION_POINTWISE_YDESC": (753, _DESCRIPTOR),
    "OPERATIONGRAPH_HANDLE": (800, _HANDLE), "OPERATIONGRAPH_OPS": (801, _DESCRIPTOR),
    "TENSOR_BYTE_ALIGNMENT": (900, _INT64), "TENSOR_DATA_TYPE": (901, _DATA_TYPE),
    "TENSOR_DIMENSIONS": (902, _INT64), "TENSOR_STRIDES": (903, _INT64), "TENSOR_UNIQUE_ID": (906, _INT64),
    "TENSOR_IS_VIRTUAL": (907, _BOOLEAN),
    "VARIANT_PACK_UNIQUE_IDS": (1000, _INT64), "VARIANT_PACK_DATA_POINTERS": (1001, _POINTER),
    "VARIANT_PACK_WORKSPACE": (1003, _POINTER), "ENGINE_NUMERICAL_NOTE": (1303, _NOTE),
}  # fmt: skip
"""cudnnBackendAttributeName_t that are used here, without CUDNN_ATTR_."""

_OUT = POINTER(c_void_p)
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cudnnCreate": (_OUT,),
    "cudnnSetStream": (c_void_p, c_void_p),
    "cudnnBackendCreateDescriptor": (c_int, _OUT),
    "cudnnBackendDestroyDescriptor": (c_void_p,),
    "cudnnBackendSetAttribute": (c_void_p, c_int, c_int, c_int64, c_void_p),
    "cudnnBackendGetAttribute": (c_void_p, c_int, c_int, c_int64, POINTER(c_int64), c_void_p),
    "cudnnBackendFinalize": (c_void_p,),
    "cudnnBackendExecute": (c_void_p, c_void_p, c_void_p),
}
"""Their parameters; each returns a cudnnStatus_t."""
_LACKING, _NOT_MADE = range(3000, 4000), range(4000, 4003)
"""cudnnStatus_t: NOT_SUPPORTED...; INTERNAL_ERROR, COMPILATION_FAILED, UNEXPECTED_VALUE, which one engine may have."""
API = ForeignApi(
    title="cuDNN", name=NAME, package=PACKAGE, functions=_FUNCTIONS, text="cudnnGetErrorString",
    no_memory=(4003, 4004), lacking=(1008, *_LACKING), failed=(1001, *range(5000, 6000)),
)  # fmt: skip
"""cudnnStatus_t: ..._HOST_ and ..._DEVICE_ALLOCATION_FAILED; SUBLIBRARY_LOADING_FAILED, NOT_SUPPORTED...;
NOT_INITIALIZED, EXECUTION_FAILED..."""


class CuDnn(LibraryFunctions):
    """The functions, and the handle for one device.

    Attributes:
        handle: That graphs and plans are made for.
        running: Held while the handle has a stream, which a call of another thread would take from it.
    """

    def __init__(self, device: OpenDevice) -> None:
        """Load the library.

        Raises:
            FusionError: It is not there, lacks a function, or has no handle for the device.
        """
        path = find_in_package("cudnn", "lib/libcudnn.so.9")
        if path is not None and find_in_package("cublas", "lib/libcublasLt.so.*") is None:
            # 9.28.1 ends the process where it first needs it
            raise API.unusable("cuBLASLt, which it calls, is not installed")
        super().__init__(API, API.load(path))
        with device.current():
            self.handle = self.make("cudnnCreate")
        self.running = Lock()


opened = OpenedOnce(CuDnn)
"""The library for each device."""


class Descriptors:
    """Descriptors of the graph API, which are destroyed with this object."""

    def __init__(self, library: LibraryFunctions) -> None:
        self._library, self._held = library, list[int]()
        weakref.finalize(self, _destroy, library, self._held).atexit = False

    def make(self, kind: str, **attributes: Sequence[Any]) -> int:
        """Return a descriptor of a kind with these attributes, finalized.

        Raises:
            FusionError: The library refuses it.
        """
        made = self._begin(kind, attributes)
        self._library.call("cudnnBackendFinalize", made)
        return made

    def make_if_supported(self, kind: str, **attributes: Sequence[Any]) -> int | None:
        """Return as `make` does; None where the library has not what it takes, or fails to make it.

        Raises:
            FusionError: The library refuses it for another reason.
        """
        made = self._begin(kind, attributes)
        status = self._library.status("cudnnBackendFinalize", made)
        if status in _LACKING or status in _NOT_MADE:
            return None
        self._library.check(status, "cudnnBackendFinalize")
        return made

    def _begin(self, kind: str, attributes: dict[str, Sequence[Any]]) -> int:
        out = c_void_p()
        self._library.call("cudnnBackendCreateDescriptor", KINDS[kind], ctypes.byref(out))
        made = out.value or 0
        self._held.append(made)
        for name, values in attributes.items():
            number, of = ATTRIBUTES[name]
            given = (of.element * len(values))(*values)
            self._library.call("cudnnBackendSetAttribute", made, number, of.number, len(values), given)
        return made

    def get(self, descriptor: int, name: str, most: int, kind: str = "") -> list[Any]:
        """Return what an attribute of a descriptor has, of at most so many elements.

        Args:
            kind: Of the descriptors that the elements are, where they are some.
        """
        number, of = ATTRIBUTES[name]
        count, values = c_int64(), (of.element * most)(*(self._begin(kind, {}) for _ in range(most if kind else 0)))
        self._library.call("cudnnBackendGetAttribute", descriptor, number, of.number, most, ctypes.byref(count), values)
        return list(values[: min(count.value, most)])


def _destroy(library: LibraryFunctions, held: list[int]) -> None:
    for each in reversed(held):
        library.discard("cudnnBackendDestroyDescriptor", each)
