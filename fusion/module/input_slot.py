"""Takes one input array into a compiled module: checks it, and copies it only where it must."""

from __future__ import annotations

from typing import Any

import numpy as np

from fusion.errors import InputError
from fusion.runtime import Tensor, tvm_ffi
from fusion.signature import TensorSpec
from fusion.tensors import allocate_tensor, as_numpy, as_tensor, needs_carrier, numpy_dtype, tensor_bytes

_ZERO_COPY_BYTES = 16 << 10
"""From this size on a view costs less than a copy (0.6 us against a memcpy at 25 GB/s)."""


class InputSlot:
    """One input of an arena: arrays are copied into memory of the slot where they must be."""

    def __init__(self, spec: TensorSpec, shape: tuple[int, ...], *, of_many: bool = False) -> None:
        """`of_many` says that there are slots for many shapes: large copies then get memory for one call each."""
        self.spec = spec
        self._shape = shape
        self._dtype = numpy_dtype(spec.dtype)
        is_large = tensor_bytes(shape, spec.dtype) >= _ZERO_COPY_BYTES
        self._may_view = is_large and not needs_carrier(spec.dtype)
        self._keeps = not (is_large and of_many)
        self._tensor: Tensor | None = None
        """What is copied into, once something was."""

    def bind(self, array: np.ndarray) -> Tensor:
        """Return `array` as a tensor that generated code can read.

        That is a view where `array` is large and contiguous, otherwise a copy in this slot, which the next call
        overwrites.

        Raises:
            InputError: Its rank, shape or dtype differs from the model's.
        """
        if array.shape != self._shape or array.dtype != self._dtype:
            raise mismatch(array, self.spec, self._shape)
        if self._may_view and array.flags.carray:
            return tvm_ffi.from_dlpack(array)
        if not self._keeps:
            return as_tensor(np.array(array, order="C"))
        if self._tensor is None:
            self._tensor = allocate_tensor(self._shape, self.spec.dtype)
            self._array = as_numpy(self._tensor)
        np.copyto(self._array, array)
        return self._tensor


def to_value(value: Any, spec: TensorSpec) -> Any:
    """Return a tensor as `to_array` does; a sequence (a list) or an optional (maybe None) as it is.

    Raises:
        InputError: As `to_array`.
    """
    return to_array(value, spec) if spec.is_tensor else value


def to_array(value: Any, spec: TensorSpec) -> np.ndarray:
    """Return `value`, any DLPack object on the CPU, as a NumPy view of it.

    Raises:
        InputError: `value` is no array, lies on another device, or does not let itself be viewed.
    """
    if type(value) is np.ndarray:
        return value
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    if isinstance(value, Tensor) and value.device.dlpack_device_type() == tvm_ffi.DLDeviceType.kDLCPU:
        return as_numpy(value)
    if not hasattr(value, "__dlpack__"):
        raise InputError(
            f"input {spec.name!r} is not an array",
            where=f"input {spec.name!r}",
            why=f"expected a NumPy array or another DLPack array, got {type(value).__name__}",
            hint=f"pass numpy.asarray(value, dtype={spec.dtype!r})",
        )
    if hasattr(value, "is_neg") and value.is_neg():  # a bit of torch's that stands for the sign, and DLPack lacks
        value = value.resolve_neg()
    try:
        return np.from_dlpack(value)
    except Exception as error:  # whatever the other library raises in __dlpack__
        if (array := _view(value)) is not None:
            return array
        raise InputError(
            f"input {spec.name!r} cannot be read as a CPU array",
            where=f"input {spec.name!r}",
            why=f"{type(value).__module__}.{type(value).__name__}: {error}",
            hint="pass value.detach()" if "detach()" in str(error) else "move it to the CPU first (torch: value.cpu())",
        ) from error


def _view(value: Any) -> np.ndarray | None:
    """Return a view of what NumPy itself does not read, such as torch's bfloat16; None where there is none either."""
    try:
        value.__dlpack__()  # which tvm_ffi does not ask: it refuses what autograd watches
        tensor = tvm_ffi.from_dlpack(value)
    except Exception:  # as above
        return None
    return as_numpy(tensor) if tensor.device.dlpack_device_type() == tvm_ffi.DLDeviceType.kDLCPU else None


def check_array(array: np.ndarray, spec: TensorSpec) -> None:
    """Raise unless `array` fits `spec`, whose unknown dimensions fit any extent.

    Raises:
        InputError: The rank, shape or dtype differs.
    """
    shape = spec.shape if spec.shape is not None else array.shape
    fits = array.ndim == len(shape) and all(
        wanted in (None, extent) for wanted, extent in zip(shape, array.shape, strict=True)
    )
    # NumPy has several dtypes of text and fusion's frontends one name.
    same_dtype = array.dtype.kind in "OUST" if spec.dtype in TEXT else array.dtype == numpy_dtype(spec.dtype)
    if not fits or not same_dtype:
        raise mismatch(array, spec, shape)


TEXT = ("object", "str", "string")
"""Names of the dtype of text, whose elements have no size."""


def mismatch(array: np.ndarray, spec: TensorSpec, shape: tuple[int | None, ...]) -> InputError:
    """Say how `array` differs from what the input takes, and what to do about it."""
    expected, got = f"{spec.dtype}{_text(shape)}", f"{array.dtype}{_text(array.shape)}"
    if array.ndim != len(shape):
        what, hint = "rank", f"the model takes {len(shape)} dimensions: {_text(shape)}"
    elif any(wanted not in (None, extent) for wanted, extent in zip(shape, array.shape, strict=True)):
        what, hint = "shape", f"resize or pad the array; {_OPEN if None in shape else _FIXED}"
    else:
        what, hint = "dtype", f"convert it: array.astype({spec.dtype!r})"
    return InputError(
        f"input {spec.name!r} has the wrong {what}",
        where=f"input {spec.name!r}",
        why=f"expected {expected}, got {got}",
        hint=hint,
    )


_OPEN = "only the dimensions shown as ? are open"
_FIXED = "where the model leaves dimensions open, compile it with shapes= of others"


def _text(shape: tuple[int | None, ...]) -> str:
    return "[" + ", ".join("?" if extent is None else str(extent) for extent in shape) + "]"
