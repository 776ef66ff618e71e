"""The driver's API, called by ctypes: its functions with their types, and what fails as an error that says what to do.

CUDA Driver API reference; names end with the version that `cuda.h` gives them.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from fusion.errors import ExecutionError, FusionError, LimitError, TargetError
from fusion.system.forks import Lock

LIBRARY = "libcuda.so.1"
"""What drivers install, and NVIDIA's runtime for containers brings into them."""
LEGACY_STREAM = 1
"""The handle of the default stream, which waits for all blocking ones and they for it (CU_STREAM_LEGACY)."""
NON_BLOCKING = 1
"""A stream that does not wait for the default one (CU_STREAM_NON_BLOCKING)."""
NO_TIMING = 2
"""An event that tells order only (CU_EVENT_DISABLE_TIMING)."""
MAX_DYNAMIC_SHARED_BYTES = 8
"""The attribute of a function (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)."""
CAPTURE_RELAXED = 2
"""What a thread does meanwhile does not end the capture of a stream (CU_STREAM_CAPTURE_MODE_RELAXED)."""
NOT_READY = 600
"""What an event answers whose work is not done."""
IN_EACH_RUN_OF_A_GRAPH = 1
"""Each launch of a captured graph records an event, or waits for it: CU_EVENT_RECORD_EXTERNAL, ..._WAIT_EXTERNAL."""


class KernelNode(ctypes.Structure):
    """What a node of a graph starts: CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = [
        ("function", c_void_p),
        *((name, c_uint) for name in ("blocks", "blocks_y", "blocks_z", "threads", "threads_y", "threads_z", "shared")),
        ("parameters", c_void_p),
        ("extra", c_void_p),
        ("kernel", c_void_p),
        ("context", c_void_p),
    ]  # fmt: skip


_HANDLE, _ADDRESS = c_void_p, c_uint64
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceTotalMem_v2": (POINTER(c_size_t), c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(_HANDLE), c_int),
    "cuCtxPushCurrent_v2": (_HANDLE,),
    "cuCtxPopCurrent_v2": (POINTER(_HANDLE),),
    "cuMemGetInfo_v2": (POINTER(c_size_t), POINTER(c_size_t)),
    "cuMemAlloc_v2": (POINTER(_ADDRESS), c_size_t),
    "cuMemFree_v2": (_ADDRESS,),
    "cuMemHostAlloc": (POINTER(c_void_p), c_size_t, c_uint),
    "cuMemFreeHost": (c_void_p,),
    "cuMemcpyHtoD_v2": (_ADDRESS, c_void_p, c_size_t),
    "cuMemcpyDtoH_v2": (c_void_p, _ADDRESS, c_size_t),
    "cuMemcpyHtoDAsync_v2": (_ADDRESS, c_void_p, c_size_t, _HANDLE),
    "cuMemcpyDtoHAsync_v2": (c_void_p, _ADDRESS, c_size_t, _HANDLE),
    "cuMemcpyDtoDAsync_v2": (_ADDRESS, _ADDRESS, c_size_t, _HANDLE),
    "cuModuleLoadData": (POINTER(_HANDLE), c_char_p),
    "cuModuleUnload": (_HANDLE,),
    "cuModuleGetFunction": (POINTER(_HANDLE), _HANDLE, c_char_p),
    "cuFuncSetAttribute": (_HANDLE, c_int, c_int),
    "cuLaunchKernel": (_HANDLE, *[c_uint] * 7, _HANDLE, POINTER(c_void_p), POINTER(c_void_p)),
    "cuStreamCreate": (POINTER(_HANDLE), c_uint),
    "cuStreamDestroy_v2": (_HANDLE,),
    "cuStreamGetFlags": (_HANDLE, POINTER(c_uint)),
    "cuStreamSynchronize": (_HANDLE,),
    "cuStreamWaitEvent": (_HANDLE, _HANDLE, c_uint),
    "cuEventCreate": (POINTER(_HANDLE), c_uint),
    "cuEventDestroy_v2": (_HANDLE,),
    "cuEventRecord": (_HANDLE, _HANDLE),
    "cuEventRecordWithFlags": (_HANDLE, _HANDLE, c_uint),
    "cuEventQuery": (_HANDLE,),
    "cuEventSynchronize": (_HANDLE,),
    "cuGraphCreate": (POINTER(_HANDLE), c_uint),
    "cuGraphAddKernelNode_v2": (POINTER(_HANDLE), _HANDLE, POINTER(_HANDLE), c_size_t, POINTER(KernelNode)),
    "cuGraphAddChildGraphNode": (POINTER(_HANDLE), _HANDLE, POINTER(_HANDLE), c_size_t, _HANDLE),
    "cuStreamBeginCapture_v2": (_HANDLE, c_int),
    "cuStreamEndCapture": (_HANDLE, POINTER(_HANDLE)),
    "cuStreamGetCaptureInfo_v2": (
        _HANDLE, POINTER(c_int), POINTER(c_uint64), POINTER(_HANDLE), POINTER(POINTER(_HANDLE)), POINTER(c_size_t),
    ),
    "cuThreadExchangeStreamCaptureMode": (POINTER(c_int),),
    "cuUserObjectCreate": (POINTER(_HANDLE), c_void_p, c_void_p, c_uint, c_uint),
    "cuUserObjectRelease": (_HANDLE, c_uint),
    "cuGraphRetainUserObject": (_HANDLE, _HANDLE, c_uint, c_uint),
    "cuGraphInstantiateWithFlags": (POINTER(_HANDLE), _HANDLE, c_uint64),
    "cuGraphLaunch": (_HANDLE, _HANDLE),
    "cuGraphExecDestroy": (_HANDLE,),
    "cuGraphDestroy": (_HANDLE,),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
}
"""Their parameters; each returns a CUresult. Those of the driver of CUDA 12.0 and later."""

_OUT_OF_MEMORY, _NOT_INITIALIZED, _NO_DEVICE = 2, 3, 100
_OLD_DRIVER = {35, 222, 803, 804}
"""INSUFFICIENT_DRIVER, UNSUPPORTED_PTX_VERSION, SYSTEM_DRIVER_MISMATCH, COMPAT_NOT_SUPPORTED_ON_DEVICE."""
_OTHER_CODE = {200, 209, 218, 221, 300, 301}
"""INVALID_IMAGE, NO_BINARY_FOR_GPU, INVALID_PTX, JIT_COMPILER_NOT_FOUND, INVALID_SOURCE, FILE_NOT_FOUND."""
BROKEN = frozenset({214, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719})
"""After which a context does nothing more: ECC_UNCORRECTABLE, ILLEGAL_ADDRESS, LAUNCH_TIMEOUT, CONTEXT_IS_DESTROYED,
ASSERT, and the faults of kernels."""
_CAPTURE = range(900, 909)
"""What refuses work beside a capture of a stream."""
SPAWN = "start processes by multiprocessing's spawn, and open the module in each"
"""What to do where a process came out of a fork."""
_ON_CPU = 'compile the model with target="llvm" to run it on this machine\'s CPU'


class Driver:
    """The functions of one library; one is enough for a process."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Give the functions of `library` their types.

        Raises:
            TargetError: It lacks one, as drivers before CUDA 12.0 do.
        """
        self._functions: dict[str, Any] = {}
        for name, parameters in _FUNCTIONS.items():
            try:
                function = getattr(library, name)
            except AttributeError as error:
                raise TargetError(
                    "the driver of the CUDA device is too old", why=f"it has no {name}", hint="install one of CUDA 12"
                ) from error
            function.argtypes, function.restype = parameters, c_int
            self._functions[name] = function

    def status(self, name: str, *arguments: Any) -> int:
        """Return what a function returns."""
        return int(self._functions[name](*arguments))

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Raises:
            FusionError: It returned an error: see `error`.
        """
        code = self._functions[name](*arguments)
        if code:
            raise self.error(code, name)

    def make(self, name: str, *arguments: Any) -> int:
        """Return the handle that a function gives through its first parameter."""
        handle = c_void_p()
        self.call(name, ctypes.byref(handle), *arguments)
        return handle.value or 0

    def number(self, name: str, *arguments: Any, kind: Any = c_int) -> int:
        """Return the number that a function gives through its first parameter."""
        found = kind()
        self.call(name, ctypes.byref(found), *arguments)
        return int(found.value)

    def error(self, code: int, name: str) -> FusionError:
        """Return the error of what the function of this name returned.

        It is a LimitError where memory ends, a TargetError where the driver, the device or the code do not fit each
        other, and an ExecutionError otherwise: of kernels that failed, which end the device's context, it says so.
        """
        why = f"{name} returned {code}, {self._text('cuGetErrorName', code)}: {self._text('cuGetErrorString', code)}"
        if code == _OUT_OF_MEMORY:
            return LimitError("the CUDA device has no memory left", why=why, hint="use smaller batches, or end others")
        if code == _NO_DEVICE:
            return no_device(why)
        if code == _NOT_INITIALIZED:
            return TargetError("this process cannot use the CUDA device: it came out of a fork", why=why, hint=SPAWN)
        if code in _OLD_DRIVER:
            return TargetError("the driver of the CUDA device is too old", why=why, hint="install a newer driver")
        if code in _OTHER_CODE:
            hint = "compile the model for this device: target=\"cuda\""
            return TargetError("the CUDA device does not take the module's code", why=why, hint=hint)
        if code in BROKEN:
            return ExecutionError(
                "a kernel failed on the CUDA device",
                why=f"{why}; an index of the model's own may lie outside of what it indexes",
                hint="look at the inputs; this process can use the device no more, start another",
            )
        if code in _CAPTURE:
            hint = "in a capture pass its stream: module(x, stream=torch.cuda.current_stream())"
            return ExecutionError("the CUDA driver refused a call beside a capture of a stream", why=why, hint=hint)
        return ExecutionError("the CUDA driver refused a call", why=why, hint="report it")

    def _text(self, name: str, code: int) -> str:
        text = c_char_p()
        failed = self._functions[name](code, ctypes.byref(text))
        return (text.value or b"").decode(errors="replace") if not failed else "an unknown error"


def no_device(why: str) -> TargetError:
    """Return the error of a machine with a driver and without a device."""
    hint = f"look at CUDA_VISIBLE_DEVICES, and at what nvidia-smi lists; or {_ON_CPU}"
    return TargetError("this machine has no CUDA device that this process may use", why=why, hint=hint)


def _begin(driver: Driver) -> None:
    code = driver.status("cuInit", 0)
    error = driver.error(code, "cuInit")
    if code and isinstance(error, TargetError):
        raise error
    if code:
        hint = f"look at what nvidia-smi says, and end other programs on the device; or {_ON_CPU}"
        raise TargetError("the driver of the CUDA device does not start", why=error.why, hint=hint)


_drivers: dict[str, Driver] = {}
_opening = Lock()


def open_driver() -> Driver:
    """Return the driver of this machine, ready.

    Raises:
        TargetError: There is none, it is too old, it does not start, or it finds no device.
    """
    with _opening:
        if LIBRARY not in _drivers:
            try:
                driver = Driver(ctypes.CDLL(LIBRARY))
            except OSError as error:
                raise TargetError(
                    "this machine has no driver of CUDA devices",
                    why=str(error),
                    hint=f"install NVIDIA's driver (in a container: docker run --gpus all); or {_ON_CPU}",
                ) from error
            _begin(driver)
            _drivers[LIBRARY] = driver
        return _drivers[LIBRARY]
