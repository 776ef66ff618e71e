"""Which of the subgraphs that a frontend leaves to ONNX Runtime run there, by what they take.

Each is an operator of the graph whose candidates are ONNX Runtime, our kernels, and each library of regions that is
named. It stays where it is but where another candidate beats that alone, and the model with all that do is faster, too:
then it is a part of the graph as any other, whose regions libraries may get.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from backends.backend import GraphLibrary, RegionLibrary
from backends.registry import host_library
from backends.subgraphs import library_of
from fusion.apart import asking_apart
from fusion.context import Context
from fusion.declined import Declined
from fusion.errors import LimitError, ResourceError, SavedFileError
from fusion.failures import last_line, passing
from fusion.frontends.imported import ImportedModel
from fusion.module.specialization import Specialization
from fusion.options import FALLBACK, FAST, GENERATOR
from fusion.placement_times import PartTimes
from fusion.placing.opens_apart import opens_apart
from fusion.placing.placement_bench import PlacementBench, placement_bench
from fusion.placing.records import REGIONS, placement_record, placement_task
from fusion.placing.region_costs import Make
from fusion.placing.subgraph_forms import form_of_subgraph, structure_of_model, structure_of_subgraph, with_forms
from fusion.signature import TensorSpec
from fusion.stages import stage
from placement.cover.places import PlacesByOrder
from tuning.known import Knowledge, ranked
from tuning.record import Record
from tuning.task import TuningTask

_SECONDS = 30.0
"""For all subgraphs of a model."""
_SUBGRAPH_SECONDS, _WHOLE_SECONDS = 1.0, 5.0
"""For one, and for the model with those moved that are faster elsewhere."""


@dataclass(frozen=True)
class PlacedSubgraphs:
    """What was found.

    Attributes:
        imported: The model, in which subgraphs that are faster elsewhere are operators.
        parts: What each that stays takes, by its key.
        notes: What was measured, a sentence each.
    """

    imported: ImportedModel
    parts: Mapping[str, PartTimes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def told_by(self, form: Specialization) -> Specialization:
        """Return a form of the model that tells this, too."""
        times = replace(form.times, parts={**self.parts, **form.times.parts})
        return replace(form, times=times, notes=(*form.notes, *self.notes))


@dataclass
class PlaceSubgraphs:
    """Measures the subgraphs of a model, or finds what was measured of them.

    Attributes:
        imported: The model, as its frontend made it.
        ctx: How it is compiled; with an effort that measures nothing what is known decides.
        make: Compiles models.
    """

    imported: ImportedModel
    ctx: Context
    make: Make
    _known: dict[str, Record] = field(default_factory=dict, init=False)
    _forms: dict[str, ImportedModel | None] = field(default_factory=dict, init=False)

    def __call__(self) -> PlacedSubgraphs:
        """Return the model with its subgraphs where they are fastest."""
        if self.ctx.libraries_only or not self.imported.subgraphs:
            return PlacedSubgraphs(self.imported)
        every = [task for tasks in self._tasks.values() for task in tasks.values()]
        self._recall(every)
        failed = ""
        if self.ctx.effort != FAST and any(task.key not in self._known for task in every):
            failed = self._measured(self._measure_alone)
        winning = [key for key, tasks in self._tasks.items() if self._best(tasks)]
        moved = {key: form for key in winning if (form := self._form(key)) is not None}
        imported = with_forms(self.imported, moved) if moved else self.imported
        if moved and self.imported.mod is not None:  # a model that is one subgraph was measured as that
            digest = structure_of_model(imported)
            task = self._task("all of these elsewhere", digest, self.imported.inputs)
            self._recall([task])
            if self.ctx.effort != FAST and task.key not in self._known:
                whole = partial(self._compare, self.imported, imported, {GENERATOR: task}, _WHOLE_SECONDS)
                failed = self._measured(whole) or failed
            if not self._wins(task):
                imported = self.imported
        stay = imported.subgraphs.keys() & self._tasks.keys()
        notes = (*self._lines(stay), *([failed] if failed else ()))
        return PlacedSubgraphs(imported, {key: self._times(self._tasks[key]) for key in stay}, notes)

    def _form(self, key: str) -> ImportedModel | None:
        """Return what other candidates run of a subgraph; None where ONNX Runtime alone can run it."""
        if key not in self._forms:
            self._forms[key] = form_of_subgraph(self.imported.subgraphs[key])
        return self._forms[key]

    @cached_property
    def _tasks(self) -> Mapping[str, Mapping[str, TuningTask]]:
        """The question of each candidate whether it is faster than ONNX Runtime, for each subgraph."""
        versions = {name: f"{name} {library.version}" for name, library in self._libraries.items()}
        names = {GENERATOR: GENERATOR, **versions}
        structures = {key: structure_of_subgraph(data) for key, data in self.imported.subgraphs.items()}
        return {
            key: {name: self._task(family, structure, ()) for name, family in names.items()}
            for key, structure in structures.items()
        }

    @property
    def _libraries(self) -> Mapping[str, RegionLibrary]:
        return {name: library for name, library in self.ctx.graph_libraries.items() if name != FALLBACK}

    @cached_property
    def _knowledge(self) -> Knowledge:
        return Knowledge.of(self.ctx.database, self.ctx.compiler)

    def _task(self, family: str, structure: str, inputs: Sequence[TensorSpec]) -> TuningTask:
        runner = host_library(FALLBACK)
        assert isinstance(runner, GraphLibrary)
        beside = f"{family} in place of {FALLBACK} {runner.version}"
        return placement_task(beside, structure, inputs, self.ctx, self._knowledge)

    def _recall(self, tasks: Iterable[TuningTask]) -> None:
        self._known |= {record.task.key: record for record in self._knowledge.records(tasks)}

    def _best(self, tasks: Mapping[str, TuningTask]) -> Record | None:
        """Return the record of the fastest candidate that beats ONNX Runtime."""
        return next(iter(ranked([self._known[t.key] for t in tasks.values() if t.key in self._known])), None)

    def _wins(self, task: TuningTask) -> bool:
        return task.key in self._known and self._known[task.key].wins

    @stage("measure subgraphs")
    def _measured(self, measure: Callable[[PlacementBench], None]) -> str:
        """Return why measuring failed; "" where it did not."""
        try:
            with asking_apart(), placement_bench(self.ctx) as bench:
                measure(bench)
        except (OSError, SavedFileError) as error:
            return passing(f"subgraphs were not measured: {error}")
        return ""

    def _measure_alone(self, bench: PlacementBench) -> None:
        """Measure what is not known of candidates for each subgraph, the largest first, while there is time."""
        deadline = self.ctx.deadline.within(_SECONDS)
        for key, data in sorted(self.imported.subgraphs.items(), key=lambda item: -len(item[1])):
            asked = {name: task for name, task in self._tasks[key].items() if task.key not in self._known}
            if not asked or deadline.left <= 0:
                continue
            form = self._form(key)
            if form is None:
                self._keep(placement_record(task, REGIONS, None, time.time()) for task in asked.values())
            else:
                there = replace(form, mod=None, subgraphs={key: data})
                self._compare(there, form, asked, _SUBGRAPH_SECONDS, bench)

    def _compare(
        self,
        there: ImportedModel,
        form: ImportedModel,
        asked: Mapping[str, TuningTask],
        seconds: float,
        bench: PlacementBench,
    ) -> None:
        """Keep what a form takes on those that are `asked`, beside what it takes `there`."""
        paths = [self._saved(there, "", bench)]
        tried: list[TuningTask] = []
        failed = list[TuningTask]()
        for name, task in asked.items():
            try:
                paths.append(self._saved(form, name, bench))
                tried.append(task)
            except (MemoryError, LimitError, ResourceError, OSError, SavedFileError):
                raise
            except Declined:  # measured it would be our kernels, under the name of the library
                failed.append(task)
            except Exception as error:  # a defect that only this form shows: ONNX Runtime runs it as before
                passing(f"a subgraph does not compile for {name}: {last_line(error)}")
                failed.append(task)
        results = bench.compare(paths, seconds)
        decision = results.decisions[0] if results.decisions else None
        times = {found.candidate: found for found in decision.times} if decision else {}
        now = time.time()
        found = [
            placement_record(
                task, REGIONS, times.get(place), now, wins=decision is not None and decision.candidate == place
            )
            for place, task in enumerate(tried, 1)
        ]
        self._keep([*found, *(placement_record(task, REGIONS, None, now) for task in failed)])

    def _keep(self, records: Iterable[Record]) -> None:
        found = list(records)
        self._knowledge.keep(found)
        self._known |= {record.task.key: record for record in found}

    def _saved(self, model: ImportedModel, name: str, bench: PlacementBench) -> str:
        """Return the path of a model whose operators a library of this name runs as far as it takes them.

        Raises:
            Declined: It takes none.
        """
        order = (1 + [*self.ctx.graph_libraries].index(name),) if name in self._libraries else ()
        libraries = {name: opens_apart(library) for name, library in self.ctx.graph_libraries.items()}
        ctx = replace(self.ctx, places=PlacesByOrder(order), graph_libraries=libraries, effort=FAST)
        form = self.make(model, ctx)
        if order and not any(library_of(key) == name for key in form.subgraphs):
            raise Declined(f"{name} takes nothing of it")
        return bench.save(form, ctx)

    def _times(self, tasks: Mapping[str, TuningTask]) -> PartTimes:
        """Return what a subgraph takes on ONNX Runtime, and the fastest of the others."""
        known = {name: self._known[task.key] for name, task in tasks.items() if task.key in self._known}
        ran = {name: record for name, record in known.items() if record.runs}
        if not ran:
            return PartTimes()
        best = min(ran, key=lambda name: ran[name].seconds)
        return PartTimes(ran[best].default_s, best, ran[best].seconds)

    def _lines(self, stay: Collection[str]) -> Iterator[str]:
        """Yield what was measured of each subgraph, a sentence each."""
        for key, tasks in self._tasks.items():
            times = self._times(tasks)
            if times.seconds is not None and times.runner_up_seconds is not None:
                there, elsewhere = f"{times.seconds * 1e3:.3f} ms", f"{times.runner_up_seconds * 1e3:.3f} ms"
                what = "stays there" if key in stay else "is part of the graph"
                yield f"a subgraph takes {there} on {FALLBACK}, and {elsewhere} on {times.runner_up}: it {what}"
            elif any(task.key in self._known for task in tasks.values()):
                yield f"a subgraph stays on {FALLBACK}: nothing else compiles, runs and agrees with that"
