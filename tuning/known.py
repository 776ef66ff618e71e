"""What a database has on the kernels of a model, and the points that follow from it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tvm import tirx

from backends.backend import KernelCompiler
from backends.tensorir.space import Choices, Point
from backends.tensorir.stages import dtype_of, shape_of
from fusion.cache.build_versions import kernel_versions
from fusion.system.cpus import cpu_model
from partition.access import is_static
from tuning.canonical import canonical
from tuning.database import RecordStore
from tuning.record import Record
from tuning.structure import structure_of
from tuning.task import CHAIN, KERNEL, Environment, Tensors, TuningTask

_log = logging.getLogger("fusion.tuning")


@dataclass(frozen=True)
class KnownKernel:
    """A kernel with its measurements.

    Attributes:
        choices: Its schedule space.
        task: Its key in the database.
        records: The newest record of each measured point.
    """

    choices: Choices
    task: TuningTask
    records: tuple[Record, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether a search for it has ended: the default's record is kept last."""
        default = self.choices.space.default.axes()
        return any(record.point == default for record in self.records)

    def best(self) -> Point | None:
        """Return the best point that beats the default; None if none does. Records of points that the space does not
        have are ignored."""
        find = self.choices.space.find
        return next((point for record in ranked(self.records) if (point := find(record.point)) is not None), None)

    def seconds(self) -> float | None:
        """Return the seconds of a call at the best point, or else the default; None if that was not measured."""
        point = (self.best() or self.choices.space.default).axes()
        measured = (each.seconds for each in self.records if each.point == point and not each.failed)
        return next(measured, None)

    def with_records(self, added: Iterable[Record]) -> KnownKernel:
        """Return it with those of the records `added` that are of its task."""
        mine = (record for record in added if record.task.key == self.task.key)
        return replace(self, records=newest((*self.records, *mine)))


@dataclass(frozen=True)
class Knowledge:
    """The database as one compilation sees it. If the database fails, nothing is known or kept, which is no error.

    Attributes:
        compiler: The compiler of the kernels.
        environment: The machine, and the versions of what compiles, of all tasks.
        store: The database; None if there is none.
    """

    compiler: KernelCompiler
    environment: Environment
    store: RecordStore | None

    @staticmethod
    def of(store: RecordStore | None, compiler: KernelCompiler, cpu: str = "") -> Knowledge:
        """Return what `store` has on kernels of `compiler`, run on this machine, or on one with the CPU model `cpu`."""
        try:
            return Knowledge(compiler, environment_of(compiler, cpu), store)
        except OSError as error:  # nobody can say what kernels are made by
            _log.info("measurements are neither kept nor looked for: %s", error)
            return Knowledge(compiler, _environment(compiler, {}, cpu), None)

    def kernels(self, funcs: Mapping[str, tirx.PrimFunc]) -> dict[str, KnownKernel]:
        """Return those of `funcs` that have a schedule space and static extents, with their records."""
        found: dict[str, KnownKernel] = {}
        for name, func in funcs.items():
            choices = choices_of(func, self.compiler)
            task = None if choices is None else self._task(KERNEL, choices.family, func)
            if choices is not None and task is not None:
                found[name] = KnownKernel(choices, task)
        records = self.records([kernel.task for kernel in found.values()])
        return {name: kernel.with_records(records) for name, kernel in found.items()}

    def chain(self, func: tirx.PrimFunc) -> TuningTask | None:
        """Return the task of deciding whether a kernel with several anchors is faster than its parts; None if no
        template supports it."""
        choices = choices_of(func, self.compiler)
        return None if choices is None else self._task(CHAIN, choices.family, func)

    def records(self, tasks: Iterable[TuningTask]) -> Sequence[Record]:
        """Return the records of `tasks`."""
        keys = list(dict.fromkeys(task.key for task in tasks))
        try:
            return self.store.find(keys) if self.store is not None and keys else ()
        except Exception as error:  # SQLite's, the system's, and whatever a store of others raises
            _log.info("the database is not read: %s", error)
            return ()

    def keep(self, records: Sequence[Record]) -> None:
        """Add `records` to the database."""
        try:
            if self.store is not None:
                self.store.add(records)
        except Exception as error:  # as above
            _log.info("%d measurements are not kept: %s", len(records), error)

    def _task(self, kind: str, family: str, func: tirx.PrimFunc) -> TuningTask | None:
        if not is_static(func):
            return None
        try:
            return TuningTask(kind, family, structure_of(func), tensors_of(func), self.environment)
        except Exception as error:  # of what has no text, TVM raises whatever it does
            _log.info("a kernel has no task: %s", error)
            return None


def environment_of(compiler: KernelCompiler, cpu: str = "") -> Environment:
    """Return the environment of kernels of `compiler` on this machine, or on one with the CPU model `cpu`.

    Raises:
        OSError: The sources cannot be read, so that their version is not known.
    """
    return _environment(compiler, kernel_versions(), cpu)


def _environment(compiler: KernelCompiler, versions: Mapping[str, str], cpu: str) -> Environment:
    return Environment(str(compiler.target), cpu or cpu_model(), compiler.threads, versions)


def choices_of(func: tirx.PrimFunc, compiler: KernelCompiler) -> Choices | None:
    """Return the schedule space of `func`; None if it has none."""
    try:
        return compiler.choices(func)
    except Exception as error:  # a template that fails is one that declines
        _log.info("a kernel has no choices: %s", error)
        return None


def tensors_of(func: tirx.PrimFunc) -> Tensors:
    """Return the dtypes and shapes of the parameters of a kernel with static extents."""
    return tuple((dtype_of(param), shape_of(param)) for param in func.params)


def ranked(records: Iterable[Record]) -> list[Record]:
    """Return the records whose points beat the default, the best first."""
    wins = [record for record in records if record.wins]
    return sorted(wins, key=lambda record: (record.ratio, canonical(record.point)))


def newest(records: Iterable[Record]) -> tuple[Record, ...]:
    """Return the newest record of each point."""
    found: dict[str, Record] = {}
    for record in sorted(records, key=lambda record: (record.measured_at, record.as_line())):
        found[canonical(record.point)] = record
    return tuple(found.values())
