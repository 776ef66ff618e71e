"""cuBLASLt's C API.

cuBLAS 12 documentation, "Using the cuBLASLt API"; numbers are those of `cublasLt.h`, `cublas_api.h` and
`library_types.h`, to which a test holds them where the package with the headers is installed.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any

from backends.cuda.libraries.cublaslt.library import PACKAGE
from backends.cuda.libraries.cublaslt.product import NAME
from backends.cuda.libraries.functions import ForeignApi, LibraryFunctions, OpenedOnce
from backends.cuda.packages import find_in_package
from backends.cuda.runtime.device import OpenDevice

REAL = {"float32": 0, "float16": 2, "bfloat16": 14}
"""cudaDataType_t of dtypes."""
COMPUTE_32F, COMPUTE_32F_FAST_TF32 = 68, 77
"""cublasComputeType_t: sums in float32, of float32 as it is, and of float32 that is rounded to tfloat32."""
TRANSA, TRANSB, EPILOGUE, BIAS_POINTER = 3, 4, 7, 8
"""cublasLtMatmulDescAttributes_t: int32, int32, uint32, a pointer."""
BATCH_COUNT, BATCH_STEP = 5, 6
"""cublasLtMatrixLayoutAttribute_t: int32, int64."""
MOST_WORKSPACE, ALIGNMENTS = 1, (5, 6, 7, 8)
"""cublasLtMatmulPreferenceAttributes_t: uint64; uint32 of each of the matrices."""
EPILOGUE_NONE, EPILOGUE_RELU, EPILOGUE_GELU, EPILOGUE_BIAS = 1, 2, 32, 4
"""cublasLtEpilogue_t, of which the bias is a bit that the others are joined with. GELU is documented as the form of a
hyperbolic tangent."""


class Heuristic(ctypes.Structure):
    """What the library proposes: cublasLtMatmulHeuristicResult_t.

    Attributes:
        algorithm: A cublasLtMatmulAlgo_t.
        workspace_bytes: That it needs.
        state: A status: whether it can be used.
    """

    _fields_ = [
        ("algorithm", c_uint64 * 8),
        ("workspace_bytes", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    ]


_OUT = POINTER(c_void_p)
_SET = (c_void_p, c_int, c_void_p, c_size_t)
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (_OUT,),
    "cublasLtMatmulDescCreate": (_OUT, c_int, c_int),
    "cublasLtMatmulDescDestroy": (c_void_p,),
    "cublasLtMatmulDescSetAttribute": _SET,
    "cublasLtMatrixLayoutCreate": (_OUT, c_int, c_uint64, c_uint64, c_int64),
    "cublasLtMatrixLayoutDestroy": (c_void_p,),
    "cublasLtMatrixLayoutSetAttribute": _SET,
    "cublasLtMatmulPreferenceCreate": (_OUT,),
    "cublasLtMatmulPreferenceDestroy": (c_void_p,),
    "cublasLtMatmulPreferenceSetAttribute": _SET,
    "cublasLtMatmulAlgoGetHeuristic": (
        *[c_void_p] * 7, c_int, POINTER(Heuristic), POINTER(c_int),
    ),
    "cublasLtMatmul": (*[c_void_p] * 14, c_size_t, c_void_p),
}  # fmt: skip
"""Their parameters; each returns a cublasStatus_t."""
API = ForeignApi(
    title="cuBLASLt", name=NAME, package=PACKAGE, functions=_FUNCTIONS, text="cublasLtGetStatusString",
    no_memory=(3,), lacking=(8, 15), failed=(1, 13),
)  # fmt: skip
"""cublasStatus_t: ALLOC_FAILED; ARCH_MISMATCH, NOT_SUPPORTED; NOT_INITIALIZED, EXECUTION_FAILED."""


class CublasLt(LibraryFunctions):
    """The functions, and the `handle` for one device."""

    def __init__(self, device: OpenDevice) -> None:
        """Load the library.

        Raises:
            FusionError: It is not there, lacks a function, or has no handle for the device.
        """
        super().__init__(API, API.load(find_in_package("cublas", "lib/libcublasLt.so.*")))
        with device.current():
            self.handle = self.make("cublasLtCreate")

    def set(self, name: str, handle: int, attribute: int, value: Any) -> None:
        """Set an attribute, which is a number of ctypes."""
        self.call(name, handle, attribute, ctypes.byref(value), ctypes.sizeof(value))


opened = OpenedOnce(CublasLt)
"""The library for each device."""
