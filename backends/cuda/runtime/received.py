"""What callers give a module on a device: tensors that are there, and streams."""

from __future__ import annotations

from typing import Any

import numpy as np

from backends.cuda.runtime.dlpack import CUDA, CUDA_MANAGED, ForeignTensor
from backends.cuda.runtime.driver import LEGACY_STREAM
from backends.cuda.runtime.found_devices import FoundDevice
from fusion.errors import FusionError, InputError, OptionError
from fusion.signature import TensorSpec


def receive_tensor(value: Any, spec: TensorSpec, stream: int, found: FoundDevice) -> ForeignTensor | None:
    """Return the tensor of an input that is on the device, ready for kernels on `stream`; None of one that is not.

    Raises:
        InputError: It is on another device, is not contiguous, or cannot be read.
    """
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack_device__"):
        return None
    try:
        kind, ordinal = (int(number) for number in value.__dlpack_device__())
    except Exception as error:  # whatever the other library raises: torch has tensors without a device
        raise _unreadable(value, spec, found, error) from error
    if kind not in (CUDA, CUDA_MANAGED):
        return None
    if ordinal != found.ordinal:
        raise InputError(
            f"input {spec.name!r} is on another device",
            where=f"input {spec.name!r}",
            why=f"it is on cuda:{ordinal}, and the module runs on {found.label}",
            hint=f'move it there (torch: value.to("{found.label}")), or pass a NumPy array',
        )
    try:
        tensor = ForeignTensor(value.__dlpack__(stream=stream))
    except FusionError:
        raise
    except Exception as error:  # whatever the other library raises in __dlpack__
        raise _unreadable(value, spec, found, error) from error
    if not tensor.is_contiguous:
        raise InputError(
            f"input {spec.name!r} is not contiguous",
            where=f"input {spec.name!r}",
            why="kernels read tensors on the device in place",
            hint="pass value.contiguous()",
        )
    return tensor


def _unreadable(value: Any, spec: TensorSpec, found: FoundDevice, error: Exception) -> InputError:
    return InputError(
        f"input {spec.name!r} cannot be read as an array on {found.label}",
        where=f"input {spec.name!r}",
        why=f"{type(value).__module__}.{type(value).__name__}: {error}",
        hint="pass value.detach()" if "detach()" in str(error) else "give a dense tensor of numbers",
    )


def handle_of(stream: Any) -> int:
    """Return the driver's handle of a caller's stream; 0 for None.

    Raises:
        OptionError: It is none.
    """
    if stream is None:
        return 0
    if hasattr(stream, "__cuda_stream__"):
        stream = stream.__cuda_stream__()[1] or LEGACY_STREAM
    elif hasattr(stream, "cuda_stream"):
        stream = stream.cuda_stream or LEGACY_STREAM
    if isinstance(stream, int) and not isinstance(stream, bool) and stream > 0:
        return stream
    raise OptionError(
        f"stream={stream!r} is no stream of CUDA",
        why="it is a handle, or an object with __cuda_stream__, as those of PyTorch and CuPy",
        hint="pass torch.cuda.current_stream(), 1 for the default stream, or leave it out",
    )
