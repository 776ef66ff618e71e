"""Which library's regions make a model faster than our kernels alone, by what the whole model takes."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from backends.subgraphs import library_of
from fusion.compiled_module import CompiledModule
from fusion.context import Context
from fusion.errors import LimitError, ResourceError, SavedFileError
from fusion.failures import last_line, passing
from fusion.frontends.imported import ImportedModel
from fusion.module.settings import settings_of
from fusion.module.shared_library import temporary_folder
from fusion.module.specialization import Specialization
from fusion.placing.experiment import ModuleExperiment
from placement.cover.places import PlacesByOrder
from tuning.decide import CandidateTimes
from tuning.known import Knowledge, ranked
from tuning.measuring_session import MeasuringSession
from tuning.record import Record
from tuning.task import PLACEMENT, TuningTask

_SECONDS = 10.0
_TOLERANCES = {"fp32": 1e-3, "bf16": 3e-2}
"""By how much results of libraries may differ from ours, by precision: sums of float32 in other orders differ by less,
and libraries do not round to bfloat16 where our kernels do."""
_POINT = {"regions": 1}
_COMMAND = "from fusion.placing.worker import main; main()"

Make = Callable[[Context], Specialization]
"""Compiles the model in one way."""


@dataclass
class ChoosePlaces:
    """Compiles a model with the regions of each library and without, and returns the form that is fastest.

    Attributes:
        imported: The model.
        ctx: With libraries of regions.
        make: Compiles it.
    """

    imported: ImportedModel
    ctx: Context
    make: Make
    _forms: dict[str, Specialization] = field(default_factory=dict, init=False)

    def __call__(self) -> Specialization:
        """Return our kernels alone unless a library's regions beat them in every block by more than the noise."""
        knowledge = Knowledge.of(self.ctx.database, self.ctx.compiler)
        tasks = self._tasks(knowledge)
        records = list(knowledge.records(tasks.values()))
        known = {record.task.key for record in records}
        left = [name for name, task in tasks.items() if task.key not in known]
        told: list[str] = []
        if left:
            measured, told = self._measure(left, tasks)
            knowledge.keep(measured)
            records += measured
        keys = {task.key: name for name, task in tasks.items()}
        best = next((keys[record.task.key] for record in ranked(records)), "")
        form = self._form(best)
        return replace(form, notes=(*form.notes, *_lines(keys, records), *told))

    def _tasks(self, knowledge: Knowledge) -> dict[str, TuningTask]:
        """Return the question of each library whether its regions are faster."""
        assert self.imported.mod is not None
        mods = (self.imported.mod, *self.imported.branches.values())
        text = "".join(mod.script(show_meta=False) for mod in mods)  # without the values of weights
        structure = hashlib.sha256(f"{self.ctx.precision}\n{text}".encode()).hexdigest()
        tensors = tuple((spec.dtype, spec.extents) for spec in self.imported.inputs)
        return {
            name: TuningTask(PLACEMENT, f"{name} {library.version}", structure, tensors, knowledge.environment)
            for name, library in self.ctx.graph_libraries.items()
        }

    def _form(self, name: str) -> Specialization:
        """Return the model with the regions of a library; with none where the name is empty."""
        if name not in self._forms:
            place = [*self.ctx.graph_libraries].index(name) + 1 if name else 0
            places = PlacesByOrder((place,) if place else ())
            self._forms[name] = self.make(replace(self.ctx, places=places))
        return self._forms[name]

    def _measure(self, names: Sequence[str], tasks: Mapping[str, TuningTask]) -> tuple[list[Record], list[str]]:
        """Return a record for each of some libraries, and what failed."""
        now = time.time()
        failed: list[str] = []
        forms: dict[str, Specialization] = {}
        for name in names:
            try:
                forms[name] = self._form(name)
            except (MemoryError, LimitError, ResourceError):
                raise
            except Exception as error:  # a defect that only its regions show: without them the model may compile
                failed.append(passing(f"with regions on {name} the model does not compile: {last_line(error)}"))
        taking = [name for name, form in forms.items() if any(library_of(key) == name for key in form.subgraphs)]
        idle = [_record(tasks[name], None, now) for name in names if name not in taking]
        notes = ((name, note) for name, form in forms.items() if name not in taking for note in form.notes)
        failed += [note for name, note in notes if note.startswith(f"the backend {name!r}")]
        if not taking:
            return idle, failed
        try:
            with temporary_folder() as folder, MeasuringSession(folder, _COMMAND) as session:
                paths = tuple(self._saved(name, folder / f"{place}.fusion") for place, name in enumerate(["", *taking]))
                results = session.run(ModuleExperiment(paths, _SECONDS, _TOLERANCES[self.ctx.precision]))
        except (OSError, SavedFileError) as error:
            return idle, [*failed, passing(f"no placement was measured: {error}")]
        if not results.decisions:
            return idle, [*failed, passing(f"no placement was measured: {results.failure}")]
        decision = results.decisions[0]
        times = {found.candidate: found for found in decision.times}
        found = (
            _record(tasks[name], times.get(place), now, wins=decision.candidate == place)
            for place, name in enumerate(taking, 1)
        )
        return [*idle, *found], failed

    def _saved(self, name: str, path: Path) -> str:
        form = self._form(name)
        CompiledModule(form.inputs, form.outputs, settings_of(self.ctx), fixed=form).save(path)
        return str(path)


def _record(task: TuningTask, found: CandidateTimes | None, now: float, *, wins: bool = False) -> Record:
    """Return what the model took with a library's regions; no runs where there are none, or they failed."""
    return Record(
        task=task,
        point=_POINT,
        seconds=found.seconds if found else 0.0,
        spread=found.spread if found else 0.0,
        runs=found.runs if found else 0,
        default_s=found.default_s if found else 0.0,
        wins=wins,
        measured_at=now,
    )


def _lines(names: Mapping[str, str], records: Sequence[Record]) -> Iterator[str]:
    """Yield what the model took with each library, whose `names` are by the keys of tasks, a sentence each."""
    for record in records:
        name, took, ours = names[record.task.key], record.seconds * 1e3, record.default_s * 1e3
        if not record.runs:
            yield f"{name} runs nothing: it takes no operator, or failed or was wrong while it was measured"
        elif record.wins:
            yield f"with regions on {name} the model takes {took:.3f} ms, all on cpu {ours:.3f} ms"
        else:
            yield f"all on cpu the model takes {ours:.3f} ms, and with regions on {name} {took:.3f} ms, no clear gain"
