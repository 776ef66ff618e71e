"""The public function `tune`: points of the kernels of models, measured in these for as long as it may."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import tvm

from fusion import context
from fusion.api import compile
from fusion.errors import OptionError
from fusion.model_tuning.networks import read_models
from fusion.model_tuning.run import TuningRun
from fusion.model_tuning.tuning import TunedModel, Tuning
from fusion.module.kernel_library import KernelLibrary
from fusion.options import MAX, read_budget, read_named_shapes
from fusion.threads import require_threads
from tuning.database import Database, RecordStore


def tune(
    models: Any,
    target: str | tvm.target.Target = "llvm",
    *,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    threads: int | None = None,
    precision: str = "fp32",
    budget: str | float = "10m",
    database: Any = None,
    on_progress: Callable[[Tuning], None] = lambda tuning: None,
) -> Tuning:
    """Search for the fastest loops of all kernels of one model or several, measured in these models on this machine,
    and keep what was measured: `compile(model, database=...)` takes the best from then on, and measures nothing.

    Kernels that models have in common are searched once. The next call goes on where this one ended, by its budget, as
    nothing is expected to gain 1% any more, or by Ctrl-C: then it returns what it has within two seconds or so.

    Args:
        models: A model, or a list of several, each as for `compile`.
        target, threads, precision: As for `compile`.
        shapes: As for `compile`; each model takes those that are of its inputs.
        budget: What it may take: seconds, or a text such as "90s", "10m" or "1h".
        database: The path of a file, or an object with the methods of `tuning.database.RecordStore`; by default the
            user's, in the cache folder.
        on_progress: Is called with what was done so far, after each few points.

    Raises:
        OptionError: An option has a value that is not allowed, there is no place for what is measured, or the target
            is not this machine.
        ResourceError: There are too few CPUs for so many threads.
        FusionError: A model is at fault; nothing is measured then.
    """
    seconds = read_budget(budget)
    given = {} if shapes is None else read_named_shapes(shapes)
    ctx = context.resolve(target, threads=threads, precision=precision, effort=MAX, database=database)
    refusal = KernelLibrary(ctx.compiler).refusal()
    if refusal:
        raise OptionError("this machine measures no kernels", why=refusal)
    require_threads(ctx.threads)
    _require_store(ctx.database)
    opened = read_models(models, given)
    compiled = partial(compile, target=target, threads=threads, precision=precision, database=ctx.database)
    tuned = [TunedModel(each.name, partial(compiled, each.model, shapes=dict(each.shapes))) for each in opened]
    path = str(ctx.database.path) if isinstance(ctx.database, Database) else ""
    state = Tuning(tuple(tuned), seconds, path)
    TuningRun(ctx, opened, state, on_progress).run()
    return state


def _require_store(store: RecordStore | None) -> None:
    """Raise unless what is measured can be kept: who finds out later has waited for nothing."""
    if store is None:
        raise OptionError("there is no place for what is measured", hint="name the file of a database")
    if isinstance(store, Database):
        try:
            store.open()
        except (OSError, sqlite3.Error) as error:
            raise OptionError(f"the database {store.path} cannot be used", why=str(error)) from error
