"""What a database knows of the kernels of a model, and which points that makes them take."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tvm import tirx

from backends.backend import KernelCompiler
from backends.tensorir.space import Choices, Point
from backends.tensorir.stages import dtype_of, shape_of
from fusion.cache.build_versions import kernel_versions
from fusion.cpus import cpu_model
from partition.access import is_static
from tuning.canonical import canonical
from tuning.database import RecordStore
from tuning.record import Record
from tuning.structure import structure_of
from tuning.task import CHAIN, KERNEL, Environment, Tensors, TuningTask

_log = logging.getLogger("fusion.tuning")


@dataclass(frozen=True)
class KnownKernel:
    """A kernel with what is known of it.

    Attributes:
        choices: What its template leaves open.
        task: The question which point is best.
        records: The newest of each point.
    """

    choices: Choices
    task: TuningTask
    records: tuple[Record, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether it was measured at all points that were to be tried: the default's record is kept with the last."""
        default = self.choices.space.default.axes()
        return any(record.point == default for record in self.records)

    def best(self) -> Point | None:
        """Return the best of the points that beat the default; None where none does. What is no point of the space, of
        whatever made such a record, is none."""
        for record in ranked(self.records):
            point: Point | None = self.choices.space.find(record.point)
            if point is not None:
                return point
        return None

    def seconds(self) -> float | None:
        """Return what a call took at the point that the kernel gets; None where that was not measured."""
        point = (self.best() or self.choices.space.default).axes()
        measured = (each.seconds for each in self.records if each.point == point and not each.failed)
        return next(measured, None)

    def with_records(self, added: Iterable[Record]) -> KnownKernel:
        """Return it with those of these records that are of its task."""
        mine = (record for record in added if record.task.key == self.task.key)
        return replace(self, records=newest((*self.records, *mine)))


@dataclass(frozen=True)
class Knowledge:
    """A database as one compilation sees it. What it refuses is no error: nothing is known, or nothing is kept.

    Attributes:
        compiler: Of the kernels.
        environment: Of all its tasks.
        store: None where there is none.
    """

    compiler: KernelCompiler
    environment: Environment
    store: RecordStore | None

    @staticmethod
    def of(store: RecordStore | None, compiler: KernelCompiler, cpu: str = "") -> Knowledge:
        """Return what `store` knows of kernels of `compiler`, run here, or where the CPU is of another kind."""
        try:
            return Knowledge(compiler, environment_of(compiler, cpu), store)
        except OSError as error:  # nobody can say what kernels are made by
            _log.info("measurements are neither kept nor looked for: %s", error)
            return Knowledge(compiler, _environment(compiler, {}, cpu), None)

    def kernels(self, funcs: Mapping[str, tirx.PrimFunc]) -> dict[str, KnownKernel]:
        """Return those of `funcs` that a template takes and whose extents are all known, with what is known of each."""
        found: dict[str, KnownKernel] = {}
        for name, func in funcs.items():
            choices = choices_of(func, self.compiler)
            task = None if choices is None else self._task(KERNEL, choices.family, func)
            if choices is not None and task is not None:
                found[name] = KnownKernel(choices, task)
        records = self.records([kernel.task for kernel in found.values()])
        return {name: kernel.with_records(records) for name, kernel in found.items()}

    def chain(self, func: tirx.PrimFunc) -> TuningTask | None:
        """Return the task of saying whether a kernel of several anchors is faster in parts; None where there is
        none."""
        choices = choices_of(func, self.compiler)
        return None if choices is None else self._task(CHAIN, choices.family, func)

    def records(self, tasks: Iterable[TuningTask]) -> Sequence[Record]:
        """Return what is known of `tasks`."""
        keys = list(dict.fromkeys(task.key for task in tasks))
        try:
            return self.store.find(keys) if self.store is not None and keys else ()
        except Exception as error:  # SQLite's, the system's, and whatever a store of others raises
            _log.info("the database is not read: %s", error)
            return ()

    def keep(self, records: Sequence[Record]) -> None:
        """Put `records` into the database."""
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
    """Return where and by what kernels of `compiler` run: here, or on the kind of CPU that `cpu_model` calls `cpu`.

    Raises:
        OSError: Nobody can say by what.
    """
    return _environment(compiler, kernel_versions(), cpu)


def _environment(compiler: KernelCompiler, versions: Mapping[str, str], cpu: str) -> Environment:
    return Environment(str(compiler.target), cpu or cpu_model(), compiler.threads, versions)


def choices_of(func: tirx.PrimFunc, compiler: KernelCompiler) -> Choices | None:
    """Return what the template that takes `func` leaves open; None where there is none."""
    try:
        return compiler.choices(func)
    except Exception as error:  # a template that fails is one that declines
        _log.info("a kernel has no choices: %s", error)
        return None


def tensors_of(func: tirx.PrimFunc) -> Tensors:
    """Return dtypes and shapes of the parameters of a kernel whose extents are all known."""
    return tuple((dtype_of(param), shape_of(param)) for param in func.params)


def ranked(records: Iterable[Record]) -> list[Record]:
    """Return those whose points beat the default, the best first."""
    wins = [record for record in records if record.wins]
    return sorted(wins, key=lambda record: (record.ratio, canonical(record.point)))


def newest(records: Iterable[Record]) -> tuple[Record, ...]:
    """Return the newest of each point, as a database keeps them."""
    found: dict[str, Record] = {}
    for record in sorted(records, key=lambda record: (record.measured_at, record.as_line())):
        found[canonical(record.point)] = record
    return tuple(found.values())
