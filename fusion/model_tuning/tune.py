"""The public function `tune`: searches for the fastest schedules of all kernels of models, within a budget."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import tvm

from fusion import context
from fusion.api import compile
from fusion.context import Context
from fusion.errors import OptionError
from fusion.model_tuning.networks import GivenModel, read_models
from fusion.model_tuning.run import TuningRun
from fusion.model_tuning.served_run import ServedRun
from fusion.model_tuning.servers import join_servers, kinds_of, names_of
from fusion.model_tuning.tuning import TunedModel, Tuning
from fusion.module.kernel_library import KernelLibrary
from fusion.options import MAX, read_bounds, read_budget, read_named_shapes, read_tracker
from fusion.system.temporary_folder import temporary_folder
from fusion.threads import require_threads
from tuning.database import Database, RecordStore
from tuning.served.tracker import Tracker

_ROOM = 64 << 20
"""Bytes of temporary files beside the weights."""


def tune(
    models: Any,
    target: str | tvm.target.Target = "llvm",
    *,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    threads: int | None = None,
    precision: str = "fp32",
    budget: str | float = "10m",
    database: Any = None,
    rpc: str | None = None,
    key: str | None = None,
    on_progress: Callable[[Tuning], None] = lambda tuning: None,
    bounds: Mapping[str, range] | None = None,
) -> Tuning:
    """Search for the fastest schedule of every kernel of one or more models, by measuring within these models on this
    machine. The measurements are kept: from then on `compile(model, database=...)` uses the best, and measures nothing.

    Kernels that models have in common are searched once. The search ends with its budget, when nothing is expected to
    gain 1% any more, or by Ctrl-C, after which it returns within about two seconds. The next call continues it.

    Args:
        models: A model, or a list of several, each as for `compile`.
        target, threads, precision: As for `compile`.
        shapes: As for `compile`; each model uses those of its own inputs.
        budget: The time for the search: seconds, or a text such as "90s", "10m" or "1h".
        database: The path of a file, or an object with the methods of `tuning.database.RecordStore`; by default the
            user's, in the cache folder.
        rpc, key: A tracker of TVM RPC ("host:9190") and the key of its servers. Points are then measured on all of
            these servers that are free, while others are compiled here. Target and threads are by default those of
            each server. Measurements of different kinds of CPU are kept apart; `compile` uses those of its own kind.
        on_progress: Called with the state so far, after every few points.
        bounds: As for `compile`; each model is tuned at one size of each dimension.

    Raises:
        OptionError: An option has a value that is not allowed, there is no place for what is measured, or the target
            is not this machine.
        ResourceError: There are too few CPUs for so many threads.
        TargetError: The tracker does not answer, it has no free server with that key, or one cannot run code for the
            target.
        DeviceLostError: All servers were lost. What was measured is kept.
        FusionError: A model is at fault; nothing is measured then.
    """
    seconds = read_budget(budget)
    given = {} if shapes is None else read_named_shapes(shapes)
    address = read_tracker(rpc, key)
    options: dict[str, Any] = {"target": target, "threads": threads, "precision": precision}
    mine = options if address is None else {}  # of this machine
    ctx = context.resolve(**mine, effort=MAX, database=database)
    refusal = KernelLibrary(ctx.compiler).refusal()
    if refusal:
        raise OptionError("this machine measures no kernels", why=refusal)
    store = _required_store(ctx.database)
    if address is None:
        require_threads(ctx.threads)
    sizes = {} if bounds is None else read_bounds(bounds)
    asked = _Asked(read_models(models, given, sizes), options, seconds, store, on_progress)
    return asked.here(ctx) if address is None else asked.on_servers(Tracker(*address), str(key))


@dataclass(frozen=True)
class _Asked:
    """A call of `tune`.

    Attributes:
        given: The models.
        options: The options of `compile` for them.
        seconds: The budget.
        store: Where measurements are kept.
        on_progress: Called with the state so far.
    """

    given: Sequence[GivenModel]
    options: Mapping[str, Any]
    seconds: float
    store: RecordStore
    on_progress: Callable[[Tuning], None]

    def here(self, ctx: Context) -> Tuning:
        """Measure on this machine."""
        state = self._state(self._models())
        TuningRun(ctx, self.given, state, self.on_progress).run()
        return state

    def on_servers(self, tracker: Tracker, key: str) -> Tuning:
        """Measure on the servers of a key."""
        with temporary_folder(_ROOM) as folder:
            joined = join_servers(tracker, key, folder)
            try:
                kinds = kinds_of(joined, self.options["target"], self.options["precision"], self.options["threads"])
                state = self._state([
                    replace(model, name=f"{model.name}{name}")
                    for kind, name in zip(kinds, names_of(kinds), strict=True)
                    for model in self._models(**kind.options)
                ])  # fmt: skip
                ServedRun(
                    kinds=kinds, given=self.given, store=self.store, folder=folder, state=state,
                    on_progress=self.on_progress,
                ).run()  # fmt: skip
            finally:
                for session in joined:
                    session.close()
        return state

    def _models(self, **changes: Any) -> list[TunedModel]:
        compiled = partial(compile, **{**self.options, **changes}, database=self.store)
        return [TunedModel(each.name, partial(compiled, each.model, shapes=dict(each.shapes))) for each in self.given]

    def _state(self, models: Sequence[TunedModel]) -> Tuning:
        path = str(self.store.path) if isinstance(self.store, Database) else ""
        return Tuning(tuple(models), self.seconds, path)


def _required_store(store: RecordStore | None) -> RecordStore:
    """Return `store`, after checking that measurements can be kept there: later would be too late to find out."""
    if store is None:
        raise OptionError("there is no place for what is measured", hint="name the file of a database")
    if isinstance(store, Database):
        try:
            store.open()
        except (OSError, sqlite3.Error) as error:
            raise OptionError(f"the database {store.path} cannot be used", why=str(error)) from error
    return store
