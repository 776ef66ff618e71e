"""The weights of a graph, checked, as arrays and as operands."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import onnx
import tvm
from onnx import TensorProto, numpy_helper
from tvm import relax
from tvm.relax import Expr

from fusion.errors import InvalidModelError, ModelFileError
from fusion.frontends.nan_note import nan_note
from fusion.frontends.onnx.declarations import LARGE
from fusion.frontends.onnx.external_data import WeightFiles
from fusion.frontends.onnx.parts import tensors
from fusion.frontends.onnx.types import Shape, type_of_tensor
from fusion.system.map_in_threads import map_in_threads
from fusion.tensors import ALIGNMENT, aligned_copy, as_numpy, as_tensor

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)
_UNKNOWN = onnx.TypeProto()


@dataclass(eq=False)
class Weights:
    """The initializers of a graph, the sparse ones made dense, and the tensors that its Constant nodes hold: all
    imports of it read the same memory.

    Attributes:
        protos, arrays: Each by its name; nobody writes to the arrays.
    """

    protos: Mapping[str, TensorProto] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    _operands: dict[tuple[str, Shape | None], Expr] = field(default_factory=dict, init=False)

    @cached_property
    def types(self) -> Mapping[str, onnx.TypeProto]:
        """The type of each, for all imports."""
        return {name: type_of_tensor(tensor) for name, tensor in self.protos.items()}

    @classmethod
    def of(cls, graph: onnx.GraphProto, files: WeightFiles | None = None) -> Weights:
        """Return the weights of `graph`, of which `files` reads those that were left apart, in threads: what takes long
        is the system, which gives their memory page by page.

        Raises:
            ModelFileError: A weight's data lies in a file that was not read, or cannot be.
            InvalidModelError: A weight's data does not fill its shape.
        """
        protos = {tensor.name: tensor for tensor in (*graph.initializer, *map(_dense, graph.sparse_initializer))}

        apart = {} if files is None else {name: each for name, each in protos.items() if _is_external(each)}
        read = {} if files is None else dict(zip(apart, map_in_threads(files.array, apart.values()), strict=True))

        def array(name: str) -> np.ndarray:
            return read[name] if name in read else _aligned(_checked_array(protos[name]))

        return cls(protos, {name: array(name) for name in protos})

    def tensor(self, name: str) -> TensorProto:
        """Return the weight `name` with its data."""
        proto = self.protos[name]
        return numpy_helper.from_array(self.arrays[name], name) if _is_external(proto) else proto

    def in_model(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """Return the model, of whose graph these are the weights, with the data of those that were left apart."""
        if not any(map(_is_external, model.graph.initializer)):
            return model
        whole = onnx.ModelProto()
        whole.CopyFrom(model)
        for tensor in filter(_is_external, whole.graph.initializer):
            tensor.CopyFrom(self.tensor(tensor.name))
        return whole

    def with_constants(self, graph: onnx.GraphProto) -> Weights:
        """Return these with what Constant nodes of `graph` hold; one is left out where its tensor cannot be read, or
        is declared to be of another type.

        Paddle writes all weights so, and half of the nodes of torch's exports are such: with them here, PP-OCR's
        recogniser is imported for other sizes in two thirds of the time.
        """
        declared = {value.name: value.type for value in (*graph.value_info, *graph.output)}
        protos, arrays = dict(self.protos), dict(self.arrays)
        for node in graph.node:
            tensor = _held(node)
            if tensor is None or declared.get(node.output[0], _UNKNOWN).tensor_type.elem_type not in (
                TensorProto.UNDEFINED,
                tensor.data_type,
            ):
                continue
            try:
                arrays[node.output[0]] = _aligned(numpy_helper.to_array(tensor))
            except (ValueError, TypeError, KeyError):
                continue
            protos[node.output[0]] = tensor
        return Weights(protos, arrays)

    def has(self, node: onnx.NodeProto) -> bool:
        """Return whether `node` is a Constant whose tensor is one of these."""
        return _held(node) is not None and node.output[0] in self.arrays

    def operand(self, name: str, shape: Shape | None = None) -> Expr:
        """Return the weight `name` as an operand, of as many elements in another shape if one is given."""
        if (name, shape) not in self._operands:
            array = self.arrays[name]
            self._operands[name, shape] = constant(array if shape is None else array.reshape(shape))
        return self._operands[name, shape]


def _is_external(tensor: TensorProto) -> bool:
    return bool(tensor.data_location == TensorProto.EXTERNAL)


def _held(node: onnx.NodeProto) -> TensorProto | None:
    """Return the tensor of a Constant node that holds nothing else."""
    if node.op_type != "Constant" or node.domain or len(node.attribute) != 1 or len(node.output) != 1 or node.input:
        return None
    (value,) = node.attribute
    is_here = value.name == "value" and value.HasField("t") and value.t.data_location != TensorProto.EXTERNAL
    return value.t if is_here else None


def _aligned(array: np.ndarray) -> np.ndarray:
    """Return `array`, a large one copied to where `constant` leaves it, so that it is in memory once."""
    return as_numpy(aligned_copy(array)) if array.nbytes >= LARGE and array.dtype.kind in "fiu" else array


def constant(array: np.ndarray) -> Expr:
    """Return `array`, to which nobody writes from now on, as an operand, its dtype kept (`relax.const` alone narrows
    int64)."""
    if not array.size:  # TVM writes constants without elements to a file that it cannot read
        return relax.op.zeros(array.shape, str(array.dtype))
    array = np.ascontiguousarray(array).reshape(array.shape)
    return relax.const(as_tensor(array) if _is_aligned(array) else tvm.runtime.tensor(array))


def _is_aligned(array: np.ndarray) -> bool:
    return array.nbytes >= LARGE and array.flags.writeable and array.ctypes.data % ALIGNMENT == 0


def weights_with_nan(model: onnx.ModelProto, weights: Weights) -> Iterator[str]:
    """Yield a note on every weight of `model` that holds NaN, where `weights` are those of its graph. Infinity is
    legitimate: attention masks hold it."""
    for tensor in tensors(model):
        known = weights.protos.get(tensor.name) is tensor
        if tensor.data_type in _FLOATS and (known or not _is_external(tensor)):  # else another has its name
            yield from nan_note(tensor.name, weights.arrays[tensor.name] if known else _array(tensor))


def _checked_array(tensor: TensorProto) -> np.ndarray:
    if _is_external(tensor):
        raise ModelFileError(
            f"the data of weight {tensor.name!r} lies in another file",
            where=tensor.name,
            hint="give the path of the model, or call onnx.load_external_data_for_model first",
        )
    return _array(tensor)


def _array(tensor: TensorProto) -> np.ndarray:
    try:
        array: np.ndarray = numpy_helper.to_array(tensor)
    except ValueError as error:
        raise InvalidModelError(
            f"the data of weight {tensor.name!r} does not fill its shape", where=tensor.name, why=str(error)
        ) from error
    return array


def _dense(sparse: onnx.SparseTensorProto) -> TensorProto:
    try:
        return _dense_tensor(sparse)
    except (ValueError, IndexError, TypeError) as error:
        raise InvalidModelError(
            f"the indices of sparse tensor {sparse.values.name!r} do not fit its shape or its values",
            where=sparse.values.name,
            why=str(error),
        ) from error


def _dense_tensor(sparse: onnx.SparseTensorProto) -> TensorProto:
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    dims = tuple(sparse.dims)
    flat = np.zeros(math.prod(dims), dtype=values.dtype)
    flat[indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), dims)] = values
    return numpy_helper.from_array(flat.reshape(dims), sparse.values.name)
