"""A case: a model and the arrays it is run with, as data that goes through pipes and into files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx

from tests.fuzz.draw import element_type

Values = dict[str, Any]
"""Arrays by name; a list of arrays for a sequence, None for an empty optional."""


@dataclass(frozen=True)
class Case:
    """One thing to try.

    Attributes:
        kind, seed: What it was made from.
        model: An ONNX model, serialised.
        inputs: What the model is run with.
        note: What was done to it beyond what is valid.
        random: Whether its results are left to chance.
        form: What `model` is: "onnx", "fusion" (a saved module), "relay" (a text) or "npz" (parameters).
        files: What lies beside it, by name.
        threads: How many it runs on.
    """

    kind: str
    seed: int
    model: bytes
    inputs: Values
    note: str = ""
    random: bool = False
    form: str = "onnx"
    files: dict[str, bytes] = field(default_factory=dict)
    threads: int = 1

    def proto(self) -> onnx.ModelProto:
        """Return the model."""
        return onnx.load_model_from_string(self.model)


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Attributes:
        verdict: One of those in `verdicts.py`.
        detail: The difference or the message.
        where: The operators of the model, and what dtypes they take.
        case: The case itself where the verdict is worth a look.
    """

    kind: str
    seed: int
    verdict: str
    detail: str = ""
    where: str = ""
    note: str = ""
    case: Case | None = field(default=None, repr=False)
    seconds: float = 0.0


def describe(model: onnx.ModelProto, inputs: Mapping[str, Any]) -> str:
    """Return the operators of `model`, with the opset where it is old, and the dtypes of the arrays they read."""
    operators = sorted(
        {f"{node.domain}.{node.op_type}".removeprefix("ai.onnx.").lstrip(".") for node in model.graph.node}
    )
    opsets = sorted({opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx")})
    arrays = [*inputs.values()]
    types = sorted(
        {_name(array) for array in arrays} | {_type_name(tensor.data_type) for tensor in model.graph.initializer}
    )
    return f"{'+'.join(operators)} opset {opsets[0] if opsets else '?'} ({', '.join(types)})"


def _name(value: Any) -> str:
    if isinstance(value, list):
        return f"seq {_name(value[0]) if value else ''}"
    return "none" if value is None else _type_name(element_type(value.dtype))


def _type_name(tensor_type: int) -> str:
    known = tensor_type in onnx.TensorProto.DataType.values()
    return str(onnx.TensorProto.DataType.Name(tensor_type)).lower() if known else str(tensor_type)
