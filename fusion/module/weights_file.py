"""Weights as a safetensors file in which every tensor starts at a multiple of 64 bytes.

Format: 8 bytes little-endian length of the header, the header in JSON, then the data without holes
(https://github.com/huggingface/safetensors). Holes are forbidden, so tensors named "pad..." fill them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import numpy as np

from fusion.runtime import Tensor
from fusion.tensors import ALIGNMENT, allocate_tensor, as_numpy, as_tensor, byte_view, numpy_dtype, tensor_bytes

_DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
    "float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3", "float8_e8m0fnu": "F8_E8M0",
}  # fmt: skip
Signature = Sequence[tuple[int, tuple[int, ...], str]]
"""Of each tensor its number in the file, its shape and dtype."""


def write_weights(weights: Sequence[Tensor]) -> bytearray:
    """Return `weights` as a safetensors file, named "w0", "w1", ...; dtypes it has no name for become U8."""
    header: dict[str, object] = {"__metadata__": {"format": "fusion"}}
    entries, end = list(_entries(weights)), 0
    for name, dtype, shape, data in entries:
        start, end = end, end + len(data)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    result = bytearray(len(text).to_bytes(8, "little") + text)
    for *_, data in entries:
        result += data
    return result


def _entries(weights: Sequence[Tensor]) -> Iterator[tuple[str, str, list[int], memoryview]]:
    for index, weight in enumerate(weights):
        data = byte_view(weight)
        known = _DTYPES.get(str(weight.dtype))
        yield f"w{index}", known or "U8", [int(d) for d in weight.shape] if known else [len(data)], data.data
        padding = -len(data) % ALIGNMENT
        if padding:
            yield f"pad{index}", "U8", [padding], memoryview(bytes(padding))


def map_weights(data: memoryview, signature: Signature) -> tuple[Tensor, ...]:
    """Return the tensors `signature` in the safetensors file `data`, as views of it.

    Raises:
        ValueError: `data` is not such a file or holds other tensors.
    """
    size = int.from_bytes(data[:8], "little")
    if 8 + size > len(data):
        raise ValueError("the header of the weights is cut short")
    header = json.loads(bytes(data[8 : 8 + size]))
    body = np.frombuffer(data, np.uint8)[8 + size :]
    return tuple(_view(body, header, f"w{number}", shape, dtype) for number, shape, dtype in signature)


def _view(body: np.ndarray, header: object, name: str, shape: tuple[int, ...], dtype: str) -> Tensor:
    entry = header.get(name) if isinstance(header, dict) else None
    if not isinstance(entry, dict) or not isinstance(entry.get("data_offsets"), list):
        raise ValueError(f"the weights have no tensor {name!r}")
    start, end = entry["data_offsets"]
    if not (0 <= start <= end <= len(body)) or end - start != tensor_bytes(shape, dtype):
        raise ValueError(f"the tensor {name!r} of the weights has another size than the module takes")
    array = body[start:end].view(numpy_dtype(dtype)).reshape(shape)
    if array.ctypes.data % ALIGNMENT:
        # A file that another program has packed again: still right, but no longer mapped.
        aligned = allocate_tensor(shape, dtype)
        np.copyto(as_numpy(aligned), array)
        return aligned
    return as_tensor(array)
