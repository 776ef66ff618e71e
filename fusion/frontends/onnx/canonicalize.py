"""Gives a model the one form of what ONNX Runtime takes in several: names and versions of domains."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from backends.registry import model_runner
from fusion.frontends.onnx.parts import nodes


def canonicalize(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return `model`, or a copy, in which "" is the only name of ONNX's domain and each domain has one version.

    As in ONNX Runtime, of several versions the last one holds. A model without any is left as it is: nobody takes it.
    """
    imports = _versions(model.opset_import)
    unsaid = {_canonical(node.domain) for node in nodes(model)}.difference(imports) if imports else set()
    if unsaid:
        versions = model_runner().versions  # loading it takes as long as importing a small model
        imports |= {domain: version for domain, version in versions.items() if domain in unsaid}
    renamed = any(node.domain == "ai.onnx" for node in nodes(model))
    if not renamed and list(imports.items()) == [(entry.domain, entry.version) for entry in model.opset_import]:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _import(copy, imports)
    for function in copy.functions:
        _import(function, _versions(function.opset_import))
    for node in nodes(copy):
        if node.domain == "ai.onnx":
            node.domain = ""
    return copy


def _canonical(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _versions(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    # protobuf reads what is no UTF-8 as bytes and does not write it; no operator is of such a domain.
    return {_canonical(entry.domain): int(entry.version) for entry in imports if isinstance(entry.domain, str)}


def _import(owner: onnx.ModelProto | onnx.FunctionProto, versions: dict[str, int]) -> None:
    del owner.opset_import[:]
    owner.opset_import.extend(onnx.helper.make_opsetid(*entry) for entry in versions.items())
