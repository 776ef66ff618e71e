"""The weights of a graph, checked."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from fusion.errors import InvalidModelError, InvalidWeightsError, ModelFileError

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)


def read_weights(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """Yield every initializer of `graph`, the sparse ones made dense.

    Raises:
        InvalidWeightsError: A weight holds NaN. (Infinity is legitimate: attention masks hold it.)
        ModelFileError: A weight's data lies in a file that was not read.
        InvalidModelError: A weight's data does not fill its shape.
    """
    for tensor in graph.initializer:
        _check(tensor)
        yield tensor
    for sparse in graph.sparse_initializer:
        yield _dense(sparse)


def _check(tensor: TensorProto) -> None:
    if tensor.data_location == TensorProto.EXTERNAL:
        raise ModelFileError(
            f"the data of weight {tensor.name!r} lies in another file",
            where=tensor.name,
            hint="give the path of the model, or call onnx.load_external_data_for_model first",
        )
    try:
        array = numpy_helper.to_array(tensor)
    except ValueError as error:
        raise InvalidModelError(
            f"the data of weight {tensor.name!r} does not fill its shape", where=tensor.name, why=str(error)
        ) from error
    if tensor.data_type not in _FLOATS:
        return
    # The sum is NaN or infinite if any element is, at a tenth of the cost of testing each.
    with np.errstate(all="ignore"):
        suspicious = array.size and not np.isfinite(array.sum(dtype=np.float32))
    if suspicious and np.isnan(array).any():
        raise InvalidWeightsError(
            f"weight {tensor.name!r} holds NaN",
            where=tensor.name,
            why=f"{int(np.isnan(array).sum())} of {array.size} elements",
            hint="train or export the model again; a NaN weight makes every output NaN",
        )


def _dense(sparse: onnx.SparseTensorProto) -> TensorProto:
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    dims = tuple(sparse.dims)
    flat = np.zeros(math.prod(dims), dtype=values.dtype)
    flat[indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), dims)] = values
    return numpy_helper.from_array(flat.reshape(dims), sparse.values.name)
