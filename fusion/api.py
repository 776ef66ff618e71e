"""The public functions: `compile` and `load`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm

from fusion import context, pipeline
from fusion.frontends import import_model
from fusion.module import CompiledModule


def compile(
    model: Any,
    target: str | tvm.target.Target = "llvm",
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    effort: str = "fast",
    threads: int | None = None,
    backends: Sequence[str] | None = None,
    strict: bool = False,
) -> CompiledModule:
    """Compile `model` into the fastest program found for `target`."""
    ctx = context.resolve(target, threads=threads, effort=effort, strict=strict, backends=tuple(backends or ()))
    imported = import_model(model, shapes)
    return CompiledModule(pipeline.lower(imported.mod, ctx), imported, ctx)
