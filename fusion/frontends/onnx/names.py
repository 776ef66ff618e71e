"""Refuses names that are no text: protobuf reads bytes that are not UTF-8 as they are, and what reads names fails."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import FunctionProto, GraphProto, ModelProto

from fusion.errors import InvalidModelError
from fusion.frontends.onnx.parts import bodies


def check_names(model: ModelProto) -> None:
    """Check the names of values, operators and attributes, by which nodes are compiled; others are for reports.

    Raises:
        InvalidModelError: One is no text.
    """
    for body in bodies(model):
        for name in _names(body):
            if not isinstance(name, str):
                raise not_text(name)


def not_text(found: bytes) -> InvalidModelError:
    """Return the error of the bytes `found` in the place of a text."""
    return InvalidModelError(
        "a name in the model is no text",
        why=f"the bytes {found!r} are not UTF-8",
        hint="the file may be damaged: export the model again",
    )


def _names(body: GraphProto | FunctionProto) -> Iterator[str]:
    if isinstance(body, GraphProto):
        yield from (value.name for value in (*body.input, *body.output, *body.initializer))
    else:
        yield from (body.domain, body.name, *body.input, *body.output, *body.attribute)
    for node in body.node:
        yield from (node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
