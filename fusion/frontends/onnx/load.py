"""Reads an ONNX model and refuses what is not one: garbage, escaping external data, sets of operators to come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path

import onnx

from fusion.errors import InvalidModelError, UnsupportedOperatorError
from fusion.failures import last_line
from fusion.foreign_files import CHECK, not_onnx
from fusion.frontends.onnx.declarations import read_declarations, read_with_weights_apart
from fusion.frontends.onnx.external_data import read_external_data, refuse_external_data
from fusion.frontends.onnx.limits import check_limits, check_nodes
from fusion.frontends.onnx.names import check_names
from fusion.system.files import read_file

# Of ONNX's own domain, which has two names.
_NEWEST_OPSET = onnx.defs.onnx_opset_version()


class Data(Enum):
    """What is read of the data of a file's tensors.

    Attributes:
        ALL: All.
        APART: All but large weights of the graph, which are external: `WeightFiles` reads them.
        NONE: None that is large, and none in other files.
    """

    ALL = "all"
    APART = "apart"
    NONE = "none"


def load_model(source: Path | onnx.ModelProto, data: Data = Data.ALL) -> onnx.ModelProto:
    """Return the model at or in `source`, of a file with so much of its data.

    Raises:
        ModelFileError: The file is no ONNX model, or its external data is missing, too short, or outside its folder.
        InvalidModelError: The model has no nodes and no outputs, two inputs of one name, a name that is no text, or
            a tensor or a type that is impossible.
        LimitError: It is larger than this process can hold, or fusion compiles.
        UnsupportedOperatorError: Its operator set is newer than the installed onnx.
    """
    if isinstance(source, onnx.ModelProto):
        model = source
        check_nodes(model)
        refuse_external_data(model)
    else:
        model = _load_file(source, data)
    check_names(model)
    check_limits(model)
    if not model.graph.output:
        raise InvalidModelError("the model's graph is empty: it has no outputs", hint=CHECK)
    names: set[str] = set()
    for value in model.graph.input:
        if value.type.WhichOneof("value") is None:
            raise InvalidModelError(f"input {value.name!r} has no type", hint=CHECK)
        if value.name in names:
            raise InvalidModelError(f"the model has two inputs {value.name!r}", hint=CHECK)
        names.add(value.name)
    _check_opset(model)
    return model


def _check_opset(model: onnx.ModelProto) -> None:
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx") and opset.version > _NEWEST_OPSET:
            raise UnsupportedOperatorError(
                f"the model uses operator set {opset.version}, and the newest that onnx {onnx.__version__} knows is "
                f"{_NEWEST_OPSET}",
                hint=f"install a newer onnx, or export the model with operator set {_NEWEST_OPSET} or older",
            )


_READ: Mapping[Data, Callable[[Path], bytes]] = {
    Data.ALL: read_file,
    Data.APART: read_with_weights_apart,
    Data.NONE: read_declarations,
}


def _load_file(path: Path, data: Data) -> onnx.ModelProto:
    form = onnx.serialization.registry.get_format_from_file_extension(path.suffix) or "protobuf"
    try:
        read = _READ[data] if form == "protobuf" else read_file
        model = onnx.load_model_from_string(read(path), form)
    except Exception as error:  # each of the formats has errors of its own
        raise not_onnx(path, last_line(error)) from error
    if not model.HasField("graph"):
        raise not_onnx(path, "it holds no graph")
    check_nodes(model)
    if data is not Data.NONE:
        read_external_data(model, path, weights_apart=data is Data.APART)
    return model
