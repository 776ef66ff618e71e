"""The record of a model: all that is decided before code generation, as texts that two trees can be compared by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import tvm

from bench.zoo import ZooModel
from fusion.context import Context
from fusion.frontends import import_model
from fusion.lowered import Lowered
from fusion.module.build import plan_calls
from fusion.pipeline import lower

HASHES = "hashes.json"


def record(model: ZooModel, ctx: Context) -> dict[str, str]:
    """Return the texts of `model` by the names of their files.

    "kernels/NAME.py": the TensorIR of each kernel, with its loops.
    "main.py": the calls between them; the shapes of what they pass on are the layouts.
    "groups.txt": the calls that each operator of the model became a part of.
    "weights.txt": dtype, shape and checksum of each weight as the kernels read it.
    "plan.txt": the memory of each buffer, and the kernels in the order they are called.
    """
    imported = import_model(str(model.path), dict(model.shapes), strict=False)
    lowered = lower(imported, ctx)
    kernels = {
        f"kernels/{symbol.name_hint}.py": func.script()
        for symbol, func in lowered.mod.functions.items()
        if isinstance(func, tvm.tirx.PrimFunc)
    }
    texts = {
        "main.py": lowered.mod["main"].script(),
        "groups.txt": _lines(_groups(lowered)),
        "weights.txt": _lines(_weights(lowered)),
        "plan.txt": _lines(_plan(lowered, len(imported.inputs), ctx)),
    }
    return {**kernels, **texts}


def write(texts: dict[str, str], folder: Path) -> None:
    """Write `texts` under `folder`, with the checksum of each."""
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in sorted(texts.items())}
    (folder / HASHES).write_text(json.dumps(digests, indent=1) + "\n")


def _groups(lowered: Lowered) -> Iterator[str]:
    calls = lowered.graph.calls
    for operator in lowered.graph.operators:
        into = ", ".join(f"{calls[position].op} {position}" for position in operator.calls)
        yield f"{operator.name} = {operator.op}: {operator.value} -> {into or operator.how}"


def _weights(lowered: Lowered) -> Iterator[str]:
    for weight in lowered.weights:
        array = np.ascontiguousarray(weight.numpy())
        yield f"{weight.dtype}{list(weight.shape)} {hashlib.sha256(array.view(np.uint8).data).hexdigest()[:16]}"


def _plan(lowered: Lowered, n_inputs: int, ctx: Context) -> Iterator[str]:
    with ctx.target:
        _, plan = plan_calls(lowered.mod, n_inputs)
    for part, entries in asdict(plan).items():
        yield from (f"{part} {number}: {entry}" for number, entry in enumerate(entries))


def _lines(lines: Iterator[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
