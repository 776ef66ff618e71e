"""cuBLASLt's C API, called by ctypes: its functions with their types, and what fails as an error that says what to do.

cuBLAS 12 documentation, "Using the cuBLASLt API"; numbers are those of `cublasLt.h`, `cublas_api.h` and
`library_types.h`, to which a test holds them where the package with the headers is installed.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any

from backends.cuda.cublaslt.library import PACKAGE
from backends.cuda.packages import find_in_package
from backends.cuda.runtime.device import OpenDevice
from fusion.errors import ExecutionError, FusionError, InternalError, LimitError, NotInstalledError, TargetError
from fusion.forks import Lock

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
EPILOGUE_NONE, EPILOGUE_RELU, EPILOGUE_BIAS, EPILOGUE_RELU_BIAS = 1, 2, 4, 6
"""cublasLtEpilogue_t."""


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
_ALLOC_FAILED, _NOT_INITIALIZED, _ARCH_MISMATCH, _NOT_SUPPORTED, _EXECUTION_FAILED = 3, 1, 8, 15, 13
_WITHOUT = 'compile the model without "cublaslt" among its backends'


class CublasLt:
    """The functions of one library, and its handle for one device."""

    def __init__(self, library: ctypes.CDLL, device: OpenDevice) -> None:
        """Give the functions their types, and make the handle.

        Raises:
            FusionError: The library lacks a function, or has no handle for the device.
        """
        self._functions: dict[str, Any] = {}
        for name, parameters in _FUNCTIONS.items():
            try:
                function = getattr(library, name)
            except AttributeError as error:
                raise _unusable(f"it has no {name}") from error
            function.argtypes, function.restype = parameters, c_int
            self._functions[name] = function
        self._text = library.cublasLtGetStatusString
        self._text.argtypes, self._text.restype = (c_int,), c_char_p
        with device.current():
            self.handle = self.make("cublasLtCreate")

    def make(self, name: str, *arguments: Any) -> int:
        """Return the handle that a function gives through its first parameter.

        Raises:
            FusionError: As `call`.
        """
        made = c_void_p()
        self.call(name, ctypes.byref(made), *arguments)
        return made.value or 0

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Raises:
            FusionError: It returned an error: a LimitError where memory ends, a TargetError where the device has not
                what the call needs, an ExecutionError where the device failed, an InternalError where we are wrong.
        """
        status = int(self._functions[name](*arguments))
        if status:
            raise self._error(status, name)

    def discard(self, name: str, handle: int) -> None:
        """Call what destroys a handle."""
        self._functions[name](handle)

    def set(self, name: str, handle: int, attribute: int, value: Any) -> None:
        """Set an attribute, which is a number of ctypes."""
        self.call(name, handle, attribute, ctypes.byref(value), ctypes.sizeof(value))

    def _error(self, status: int, name: str) -> FusionError:
        why = f"{name} returned {status}: {(self._text(status) or b'').decode(errors='replace')}"
        if status == _ALLOC_FAILED:
            hint = "use smaller batches, or end other programs on the device"
            return LimitError("cuBLASLt has no memory on the device", why=why, hint=hint)
        if status in (_ARCH_MISMATCH, _NOT_SUPPORTED):
            return TargetError("cuBLASLt has no product for this device", why=why, hint=_WITHOUT)
        if status in (_NOT_INITIALIZED, _EXECUTION_FAILED):
            hint = f"start another process; or {_WITHOUT}"
            return ExecutionError("cuBLASLt failed on the CUDA device", why=why, hint=hint)
        return InternalError("cuBLASLt refuses a call", why=why, hint="report it")


def _unusable(why: str) -> NotInstalledError:
    hint = f"pip install {PACKAGE}; or {_WITHOUT}"
    return NotInstalledError("the module needs cuBLASLt, which cannot be loaded", why=why, hint=hint)


_open: dict[OpenDevice, CublasLt] = {}
_opening = Lock()


def open_cublaslt(device: OpenDevice) -> CublasLt:
    """Return the library for a device, the same for all that use it there.

    Raises:
        NotInstalledError: Its package is not installed, or what it has cannot be loaded.
    """
    with _opening:
        if device not in _open:
            path = find_in_package("cublas", "lib/libcublasLt.so.*")
            if path is None:
                raise _unusable(f"{PACKAGE} is not installed")
            try:
                library = ctypes.CDLL(path)
            except OSError as error:
                raise _unusable(str(error)) from error
            _open[device] = CublasLt(library, device)
        return _open[device]
