"""What besides a model decides its code: options, target, machine and versions, as plain data for a checksum."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import tvm

from fusion.cache.build_versions import build_versions
from fusion.context import Context
from fusion.options import FAST
from fusion.system.cpus import cpu_model

_NOT_TEXT = (
    "cache", "libraries", "graph_libraries", "places", "database", "model", "writer", "deadline", "opens_sizes",
    "to_fall_back",
)  # fmt: skip
"""Fields of the context that say where things are or when measuring ends, what a database holds that was named being
another, one of which the sum counts, one that decides which kernels there are, each of which tells its source, and
one that only words an error."""


def decided_by(ctx: Context) -> dict[str, Any]:
    """Return all of that: every field of `ctx` but where things are, and of libraries their names and versions."""
    options = {field.name: getattr(ctx, field.name) for field in dataclasses.fields(ctx)}
    compiler = options.pop("compiler")
    return {
        "target": str(compiler.target),
        "features": sorted(compiler.features),
        "machine": dataclasses.asdict(compiler.machine),
        "threads": compiler.threads,
        # What was measured holds for CPUs of this model only.
        "measured": "" if ctx.effort == FAST and ctx.database is None else cpu_model(),
        "learned": "" if ctx.model is None else ctx.model.digest,
        "libraries": [[name, library.version] for name, library in ctx.graph_libraries.items()],
        "places": str(ctx.places),
        "passes": str(tvm.transform.PassContext.current()),
        "versions": build_versions(),
        "options": {name: value for name, value in options.items() if name not in _NOT_TEXT},
    }


def key_of(decided: Mapping[str, Any]) -> str:
    """Return the sha256 of plain data, in hexadecimal."""
    return hashlib.sha256(json.dumps(decided, sort_keys=True).encode()).hexdigest()
