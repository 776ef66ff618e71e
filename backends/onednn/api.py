"""The functions of oneDNN's C API that are called, typed; what fails is an error, and what was made is freed."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_float, c_int, c_int64, c_size_t, c_uint, c_void_p
from functools import cache
from typing import Any

import numpy as np

from backends.onednn.threads import OpenMpThreads
from backends.onednn.wheels import load_libraries

MAX_RANK = 12
F32 = 3
ANY_FORMAT = 1
FORWARD_INFERENCE = 96
_CPU = 1
_DEFAULT_STREAM = 1
_IMPLEMENTATION = 8
"""`dnnl_query_impl_info_str`."""
_OUT_OF_MEMORY = 1
_STATUS = (
    "success", "out_of_memory", "invalid_arguments", "unimplemented", "last_impl_reached", "runtime_error",
    "not_required",
)  # fmt: skip

Dims = c_int64 * MAX_RANK
_OUT = POINTER(c_void_p)
_MD = c_void_p
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "dnnl_engine_create": (_OUT, c_int, c_size_t),
    "dnnl_stream_create": (_OUT, c_void_p, c_uint),
    "dnnl_stream_wait": (c_void_p,),
    "dnnl_memory_desc_create_with_strides": (_OUT, c_int, Dims, c_int, Dims),
    "dnnl_memory_desc_create_with_tag": (_OUT, c_int, Dims, c_int, c_int),
    "dnnl_memory_create": (_OUT, _MD, c_void_p, c_void_p),
    "dnnl_memory_set_data_handle": (c_void_p, c_void_p),
    "dnnl_primitive_attr_create": (_OUT,),
    "dnnl_primitive_attr_set_fpmath_mode": (c_void_p, c_int),
    "dnnl_primitive_attr_set_scratchpad_mode": (c_void_p, c_int),
    "dnnl_primitive_attr_set_post_ops": (c_void_p, c_void_p),
    "dnnl_post_ops_create": (_OUT,),
    "dnnl_post_ops_append_eltwise": (c_void_p, c_int, c_float, c_float),
    "dnnl_post_ops_append_binary": (c_void_p, c_int, _MD),
    "dnnl_primitive_create": (_OUT, c_void_p),
    "dnnl_primitive_execute": (c_void_p, c_void_p, c_int, c_void_p),
    "dnnl_reorder_primitive_desc_create": (_OUT, _MD, c_void_p, _MD, c_void_p, c_void_p),
    "dnnl_matmul_primitive_desc_create": (_OUT, c_void_p, _MD, _MD, _MD, _MD, c_void_p),
    "dnnl_convolution_forward_primitive_desc_create": (
        _OUT, c_void_p, c_int, c_int, _MD, _MD, _MD, _MD, Dims, Dims, Dims, Dims, c_void_p
    ),
    "dnnl_pooling_forward_primitive_desc_create": (
        _OUT, c_void_p, c_int, c_int, _MD, _MD, Dims, Dims, Dims, Dims, Dims, c_void_p
    ),
    "dnnl_softmax_forward_primitive_desc_create": (_OUT, c_void_p, c_int, c_int, _MD, _MD, c_int, c_void_p),
    "dnnl_eltwise_forward_primitive_desc_create": (
        _OUT, c_void_p, c_int, c_int, _MD, _MD, c_float, c_float, c_void_p
    ),
    "dnnl_binary_primitive_desc_create": (_OUT, c_void_p, c_int, _MD, _MD, _MD, c_void_p),
    "dnnl_primitive_desc_query": (c_void_p, c_int, c_int, c_void_p),
    "dnnl_layer_normalization_forward_primitive_desc_create": (
        _OUT, c_void_p, c_int, _MD, _MD, _MD, c_float, c_uint, c_void_p
    ),
}  # fmt: skip
"""Their parameters; each returns a status."""


class OneDnnError(RuntimeError):
    """A call of oneDNN that returned another status than success."""


class Handle:
    """What a function of oneDNN made; freed with this object.

    Attributes:
        pointer: Where it is.
        held: What it refers to.
    """

    def __init__(self, pointer: c_void_p, destroy: Any, held: object = None) -> None:
        self.pointer = pointer
        self.held = held
        self._destroy = destroy

    @property
    def _as_parameter_(self) -> c_void_p:
        return self.pointer

    def __del__(self) -> None:
        self._destroy(self.pointer)


class ExecArg(ctypes.Structure):
    """`dnnl_exec_arg_t`: which argument of a primitive, and the memory."""

    _fields_ = (("argument", c_int), ("memory", c_void_p))


class OneDnn:
    """The library, and the one engine of this process's CPUs.

    Attributes:
        engine: That.
        threads: What runs its loops.
    """

    def __init__(self) -> None:
        self._dnnl, openmp = load_libraries()
        self.threads = OpenMpThreads(openmp)
        for name, parameters in _FUNCTIONS.items():
            getattr(self._dnnl, name).argtypes = parameters
        self._dnnl.dnnl_primitive_desc_query_md.argtypes = (c_void_p, c_int, c_int)
        self._dnnl.dnnl_primitive_desc_query_md.restype = c_void_p
        self._dnnl.dnnl_memory_desc_get_size.argtypes = (c_void_p,)
        self._dnnl.dnnl_memory_desc_get_size.restype = c_size_t
        self._dnnl.dnnl_memory_desc_equal.argtypes = (c_void_p, c_void_p)
        self.engine = self.make("dnnl_engine", "create", _CPU, 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Raises:
            MemoryError: It found no memory.
            OneDnnError: It returned another status than success.
        """
        status = getattr(self._dnnl, name)(*arguments)
        if status == _OUT_OF_MEMORY:
            raise MemoryError(f"{name} found no memory")
        if status:
            raise OneDnnError(f"{name}: {_STATUS[status] if status < len(_STATUS) else status}")

    def make(self, kind: str, how: str, *arguments: Any) -> Handle:
        """Return what the function `kind`_`how` makes; its first parameter is where it puts that.

        Raises:
            MemoryError: It found no memory.
            OneDnnError: It returned another status than success.
        """
        made = c_void_p()
        self.call(f"{kind}_{how}", ctypes.byref(made), *arguments)
        return Handle(made, getattr(self._dnnl, f"{kind}_destroy"))

    def make_description(self, primitive: str, *arguments: Any) -> Handle:
        """Return the description of a `primitive`."""
        made = c_void_p()
        self.call(f"dnnl_{primitive}_primitive_desc_create", ctypes.byref(made), *arguments)
        return Handle(made, self._dnnl.dnnl_primitive_desc_destroy)

    def make_stream(self) -> Handle:
        """Return a stream, in which primitives run one after the other."""
        return self.make("dnnl_stream", "create", self.engine, _DEFAULT_STREAM)

    def make_memory(self, kind: Any, array: np.ndarray | None = None) -> Handle:
        """Return memory that `kind` describes: that of an array, or at an address that each call says."""
        address = None if array is None else array.ctypes.data
        made = self.make("dnnl_memory", "create", kind, self.engine, address)
        made.held = (kind, array)
        return made

    def size(self, kind: Any) -> int:
        """Return the bytes of memory that a memory descriptor describes."""
        return int(self._dnnl.dnnl_memory_desc_get_size(kind))

    def query(self, description: Handle, what: int, index: int = 0) -> c_void_p:
        """Return a memory descriptor that a description of a primitive has, for as long as that is there."""
        return c_void_p(self._dnnl.dnnl_primitive_desc_query_md(description, what, index))

    def implementation(self, description: Handle) -> str:
        """Return the name of what runs a primitive."""
        found = c_char_p()
        self.call("dnnl_primitive_desc_query", description, _IMPLEMENTATION, 0, ctypes.byref(found))
        return (found.value or b"").decode()

    def are_equal(self, one: Any, other: Any) -> bool:
        """Return whether two memory descriptors say the same."""
        return bool(self._dnnl.dnnl_memory_desc_equal(one, other))


def dims(values: Sequence[int]) -> Any:
    """Return numbers as oneDNN takes them."""
    return Dims(*values)


@cache
def onednn() -> OneDnn:
    """Return the library, loaded once.

    Raises:
        PackageNotFoundError: One of its wheels is not installed.
        OSError: A file of theirs is missing, or cannot be loaded.
    """
    return OneDnn()
