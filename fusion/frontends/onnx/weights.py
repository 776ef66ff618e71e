"""The weights of a graph, checked."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from fusion.errors import InvalidModelError, ModelFileError
from fusion.frontends.nan_note import nan_note
from fusion.frontends.onnx.parts import tensors

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)


def read_weights(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """Yield every initializer of `graph`, the sparse ones made dense.

    Raises:
        ModelFileError: A weight's data lies in a file that was not read.
        InvalidModelError: A weight's data does not fill its shape.
    """
    for tensor in graph.initializer:
        _check(tensor)
        yield tensor
    for sparse in graph.sparse_initializer:
        yield _dense(sparse)


def weights_with_nan(model: onnx.ModelProto) -> Iterator[str]:
    """Yield a note on every weight of `model` that holds NaN. Infinity is legitimate: attention masks hold it."""
    for tensor in tensors(model):
        if tensor.data_type in _FLOATS:
            yield from nan_note(tensor.name, _array(tensor))


def _check(tensor: TensorProto) -> None:
    if tensor.data_location == TensorProto.EXTERNAL:
        raise ModelFileError(
            f"the data of weight {tensor.name!r} lies in another file",
            where=tensor.name,
            hint="give the path of the model, or call onnx.load_external_data_for_model first",
        )
    _array(tensor)


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
