"""Which regions of a model libraries run, by what the whole model then takes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from backends.backend import Library
from backends.subgraphs import library_of
from fusion import pipeline
from fusion.apart import asking_apart
from fusion.context import Context
from fusion.declined import Declined
from fusion.errors import ExecutionError, FusionError, LimitError, ResourceError, SavedFileError
from fusion.failures import last_line, passing
from fusion.frontends.imported import ImportedModel
from fusion.measuring import MAX_SECONDS
from fusion.module.specialization import Specialization
from fusion.options import FAST, GENERATOR, MAX
from fusion.passes.regions import LibraryOffer, RegionGraph, failure_of, try_offer
from fusion.passes.try_library import try_libraries
from fusion.placement_times import PartTimes, PlacementTimes
from fusion.placing.kernel_costs import kernel_costs
from fusion.placing.kernels_alone import measure_alone
from fusion.placing.opens_apart import opens_apart
from fusion.placing.part_times import kernel_records, times_of_kernels, times_of_regions
from fusion.placing.placement_bench import PlacementBench, placement_bench
from fusion.placing.records import REGIONS, backends_in, placement_at, placement_record, placement_task, point_of
from fusion.placing.region_costs import Make, MeasuredCosts
from fusion.placing.search import SearchedLibrary, search_placement
from fusion.placing.subgraph_forms import structure_of_model
from fusion.report.placement import all_on_cpu
from fusion.stages import stage
from fusion.system.deadline import Deadline
from placement.cover.places import GivenPlaces, Places, PlacesByOrder, TakenOperators
from placement.cover.problem import HOST
from placement.cover.regions import PlacedSubgraph
from tuning.known import Knowledge, ranked
from tuning.record import Record
from tuning.task import TuningTask

_SECONDS = 10.0
"""For comparing whole models."""
_SEARCH_SECONDS = 30.0
"""For placements of the whole model that an evolution asks for."""
_PLACING_SECONDS = 120.0
"""From the first kernel that is measured to the last placement, where that is not known."""
_KNOWN_SECONDS = 15.0
"""For kernels that are still to be measured, where the placement is known: with records a compilation is to take less
than 30 s, of which BERT-base takes 7 for other things."""
_ALL_CPU, _MIXED = "", "regions chosen one by one"
"""Names of placements beside those of libraries, which have all regions that these take."""


@dataclass(frozen=True)
class _Trials:
    """What placements are measured with.

    Attributes:
        knowledge: What was measured before, and where what is measured is kept.
        bench: Saves modules and compares them.
        all_cpu: The saved module of our kernels alone; "" where none is compared with it.
    """

    knowledge: Knowledge
    bench: PlacementBench
    all_cpu: str = ""


@dataclass
class ChoosePlaces:
    """Compiles a model with regions on libraries and without, and returns the form that is fastest.

    Attributes:
        imported: The model.
        ctx: With libraries of regions.
        make: Compiles models.
    """

    imported: ImportedModel
    ctx: Context
    make: Make
    _forms: dict[tuple[str, str], Specialization] = field(default_factory=dict, init=False)
    _mixed: Sequence[PlacedSubgraph] = field(default=(), init=False)
    _offers: dict[int, LibraryOffer] = field(default_factory=dict, init=False)
    _failed: dict[str, None] = field(default_factory=dict, init=False)
    _reasons: dict[str, str] = field(default_factory=dict, init=False)

    def __call__(self) -> Specialization:
        """Return our kernels alone unless regions on libraries beat them in every block by more than the noise; with
        an effort that measures nothing, the model as the context places it where that is not known. Where libraries are
        to run all operators, they are placed in the order of their names unless another one first is faster."""
        with asking_apart():
            return self._choose()

    def _choose(self) -> Specialization:
        knowledge = Knowledge.of(self.ctx.database, self.ctx.compiler)
        tasks = self._tasks(knowledge)
        records = list(knowledge.records(tasks.values()))
        known = {record.task.key for record in records}
        left = [name for name, task in tasks.items() if task.key not in known]
        told: list[str] = []
        self.ctx = replace(self.ctx, deadline=self._deadline(is_known=not left))
        if left and self.ctx.effort != FAST:
            measured, told = self._measure(left, tasks, knowledge, records)
            knowledge.keep(measured)
            records += measured
        names = {task.key: name for name, task in tasks.items()}
        best = next((record for record in ranked(records) if self._is_known(names[record.task.key], record)), None)
        if best is None and left and self.ctx.effort == FAST:
            return self.make(self.imported, self.ctx)
        name = names[best.task.key] if best else _ALL_CPU
        form = self._form(name, self.ctx)
        parts = self._parts(name, form, knowledge)
        times = _times(form, best, {names[record.task.key]: record for record in records if record.runs}, parts)
        if self.ctx.libraries_only:
            times = replace(times, all_cpu_seconds=None)
        lines = _lines(names, records, self._reasons, base=self._base, how=self._how)
        notes = (*form.notes, *lines, *told, *self._failed)
        return replace(form, times=times, notes=tuple(dict.fromkeys(notes)))

    @property
    def _base(self) -> str:
        """What others have to beat."""
        if self.ctx.libraries_only:
            return "in the order of names"
        return all_on_cpu([node.op for node in self.imported.fallbacks])

    @property
    def _how(self) -> str:
        """How a placement is called, but for the name of the library."""
        return "regions first on" if self.ctx.libraries_only else "regions on"

    def _deadline(self, *, is_known: bool) -> Deadline:
        """Return when all that is measured ends, kernels too; the highest effort has its own time for these."""
        seconds = _KNOWN_SECONDS if is_known else _PLACING_SECONDS
        return Deadline.after(seconds + (MAX_SECONDS if self.ctx.effort == MAX else 0.0))

    def _parts(self, name: str, form: Specialization, knowledge: Knowledge) -> dict[str, PartTimes]:
        """Return what is known of the parts of a `form`, which the placement of a `name` makes."""
        if self.imported.branches or not self.ctx.graph_libraries or self.ctx.libraries_only:
            return {}
        groups = self._places(name)(self._graph.graph, self._taken)
        regions = times_of_regions(groups, self._offers, self.ctx, knowledge)
        kernels = times_of_kernels(self._graph, form, self.ctx, knowledge)
        if name != _ALL_CPU and self.ctx.effort != FAST and form.kernels.keys() - kernels.keys():
            # Beside regions kernels are others than where all is on cpu, which alone was timed.
            self._time_kernels(form, knowledge)
            kernels = times_of_kernels(self._graph, form, self.ctx, knowledge)
        return {**kernels, **regions}

    def _time_kernels(self, form: Specialization, knowledge: Knowledge) -> None:
        """Keep what is not known of the kernels of a form: what they take in it, and on libraries that run them."""
        with suppress(Declined, FusionError, OSError):
            kernels = kernel_costs(self._graph, form)
            made = kernel_records(self._graph, kernels, self.ctx, knowledge)
            known = {record.task.key for record in knowledge.records(record.task for record in made)}
            knowledge.keep([record for record in made if record.task.key not in known])
            with placement_bench(self.ctx) as bench:
                costs = self._costs(_Trials(knowledge, bench), self.ctx.deadline)
                measure_alone(costs, kernels)
                self._tell(costs)

    def _is_known(self, name: str, record: Record) -> bool:
        """Return whether what a record tells is a placement by libraries which neither crash nor hang; where it tells
        one region by region, take that."""
        if name != _MIXED:
            return self._offer(1 + [*self.ctx.graph_libraries].index(name)) is not None
        libraries = len(self.ctx.graph_libraries)
        used = backends_in(record.point) & set(range(1, libraries + 1))
        if any(self._offer(place) is None for place in sorted(used)):
            return False
        placed = placement_at(record.point, self._graph.graph, libraries, self._parts_of)
        self._mixed = placed or ()
        return placed is not None

    @cached_property
    def _graph(self) -> RegionGraph:
        assert self.imported.mod is not None
        return pipeline.regions_of(self.imported.mod, self.ctx)

    def _offer(self, place: int) -> LibraryOffer | None:
        """Return what the library at a position takes; None where it crashes or hangs, which is told."""
        if place not in self._offers:
            name, library = [*self.ctx.graph_libraries.items()][place - 1]
            try:
                self._offers[place] = try_offer(self._graph, name, library, self.ctx.threads)
            except (ExecutionError, OSError) as error:
                self._failed[failure_of(name, "takes nothing", error)] = None
        return self._offers.get(place)

    def _taken(self, place: int) -> TakenOperators:
        """Return what the library at a position takes, nothing where it crashes or hangs."""
        offer = self._offer(place)
        return TakenOperators(frozenset()) if offer is None else offer.taken

    def _parts_of(self, place: int) -> Sequence[frozenset[int]] | None:
        """Return the parts that the library at a position runs, None where it runs any region; it was tried."""
        offer = self._offers[place]
        return tuple(offer.patterns) if isinstance(offer.library, Library) else None

    def _tasks(self, knowledge: Knowledge) -> dict[str, TuningTask]:
        """Return the question of each library whether its regions are faster, and that of regions chosen one by one."""
        structure = structure_of_model(self.imported)
        versions = {name: f"{name} {library.version}" for name, library in self.ctx.graph_libraries.items()}
        if self.ctx.libraries_only:
            order = ", ".join(versions.values())
            families = {name: f"{version} before {order}" for name, version in [*versions.items()][1:]}
        else:
            families = dict(versions)
            if not self.imported.branches:  # what is inside of them only some runs take, and no search asks for
                has_parts = any(isinstance(library, Library) for library in self.ctx.graph_libraries.values())
                how = f"{_MIXED}, of all matches" if has_parts else _MIXED  # not of some, as records before had it
                families[_MIXED] = f"{how}: {', '.join(versions.values())}"
        return {
            name: placement_task(family, structure, self.imported.inputs, self.ctx, knowledge)
            for name, family in families.items()
        }

    def _form(self, name: str, ctx: Context) -> Specialization:
        """Return the model in the placement of a name, compiled as `ctx` says but for that."""
        if (name, ctx.effort) not in self._forms:
            self._forms[name, ctx.effort] = self.make(self.imported, replace(ctx, places=self._places(name)))
        return self._forms[name, ctx.effort]

    def _trial(self, name: str) -> Specialization:
        """Return the form that is measured. The kernels around regions are nearly all in the one on cpu too, which is
        made first: their points are recalled, and only those of a placement that is taken are measured."""
        ctx = self.ctx if name == _ALL_CPU else replace(self._ctx_apart, effort=FAST)
        return self._form(name, ctx)

    @property
    def _ctx_apart(self) -> Context:
        """What trials are compiled with: no library opens a region here."""
        libraries = self.ctx.graph_libraries.items()
        return replace(self.ctx, graph_libraries={name: opens_apart(library) for name, library in libraries})

    def _places(self, name: str) -> Places:
        if name == _MIXED:
            return GivenPlaces(self._graph.graph.names, tuple(self._mixed))
        first = (1 + [*self.ctx.graph_libraries].index(name),) if name else ()
        rest = range(1, 1 + len(self.ctx.graph_libraries)) if self.ctx.libraries_only else ()
        return PlacesByOrder((*first, *(place for place in rest if place not in first)))

    @stage("measure placements")
    def _measure(
        self, names: Sequence[str], tasks: Mapping[str, TuningTask], knowledge: Knowledge, known: Sequence[Record]
    ) -> tuple[list[Record], list[str]]:
        """Return a record for each of some placements, and what failed; `known` are those of the others."""
        libraries = [name for name in names if name != _MIXED]
        self._trial(_ALL_CPU)  # first: others recall what is measured of its kernels
        found, failed = list[Record](), list[str]()
        try:
            try_libraries(self._graph.mod, self.ctx.graph_libraries, self.ctx.threads)
            with placement_bench(self.ctx) as bench:
                taking, failed = self._compile(libraries)
                idle_ones = [name for name in libraries if name not in taking]
                self._reasons |= dict.fromkeys(idle_ones, "it takes no operator, or does not compile")
                found += (placement_record(tasks[name], REGIONS, None, time.time()) for name in idle_ones)
                if not taking and _MIXED not in names:
                    return found, failed
                trials = _Trials(knowledge, bench, bench.save(self._trial(_ALL_CPU), self.ctx))
                found += self._compared(taking, tasks, trials)
                if _MIXED in names:
                    ran = {record.task.key: record.ratio for record in (*known, *found) if record.runs}
                    wholes = {name: ran[task.key] for name, task in tasks.items() if task.key in ran}
                    self._mixed = self._search(trials, wholes)
                    moves = any(group.backend != HOST for group in self._mixed)
                    idle = placement_record(tasks[_MIXED], {"0": HOST}, None, time.time())
                    found += self._compared([_MIXED], tasks, trials) if moves else [idle]
        except (OSError, SavedFileError, Declined) as error:
            failed.append(passing(f"a placement was not measured: {error}"))
        return found, failed

    @stage("whole models")
    def _compared(self, names: Sequence[str], tasks: Mapping[str, TuningTask], trials: _Trials) -> list[Record]:
        """Return records of some placements, which take turns with our kernels alone.

        Raises:
            Declined: These fail.
        """
        if not names:
            return []
        paths = [trials.bench.save(self._trial(name), self.ctx) for name in names]
        results = trials.bench.compare([trials.all_cpu, *paths], self._seconds)
        reasons = {**results.notes, **results.reasons}
        self._reasons |= {names[trial.candidate - 1]: reason for trial, reason in reasons.items()}
        if not results.decisions:
            raise Declined(results.failure)
        decision, points = results.decisions[0], {_MIXED: point_of(self._mixed, self._parts_of)}
        times = {found.candidate: found for found in decision.times}
        return [
            placement_record(
                tasks[name], points.get(name, REGIONS), times.get(place), time.time(), wins=decision.candidate == place
            )
            for place, name in enumerate(names, 1)
        ]

    def _compile(self, names: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return which of some libraries take regions, and which failed, a sentence each."""
        failed: list[str] = []
        forms: dict[str, Specialization] = {}
        for name in names:
            try:
                forms[name] = self._trial(name)
            except (MemoryError, LimitError, ResourceError):
                raise
            except Exception as error:  # a defect that only its regions show: without them the model may compile
                failed.append(passing(f"with regions on {name} the model does not compile: {last_line(error)}"))
        taking = [name for name, form in forms.items() if any(library_of(key) == name for key in form.subgraphs)]
        notes = ((name, note) for name, form in forms.items() if name not in taking for note in form.notes)
        return taking, [*failed, *(note for name, note in notes if note.startswith(f"the backend {name!r}"))]

    @stage("search")
    def _search(self, trials: _Trials, wholes: Mapping[str, float]) -> Sequence[PlacedSubgraph]:
        """Return the best placement that is found region by region, on the libraries of which it is known what the
        whole takes over our kernels; none where nothing is known of these, or it is all that one library takes."""
        found = self._graph
        try:
            kernels = kernel_costs(found, self._trial(_ALL_CPU))
            trials.knowledge.keep(kernel_records(found, kernels, self.ctx, trials.knowledge))
            libraries = {
                place: SearchedLibrary(offer.taken, wholes[name])
                for place, name in enumerate(self.ctx.graph_libraries, 1)
                if name in wholes and (offer := self._offer(place))
            }
        except (Declined, FusionError):
            return ()
        deadline = self.ctx.deadline.before(_SECONDS)  # what is found is compared, too
        costs = self._costs(trials, deadline)
        measure_alone(costs, kernels)
        ends = deadline.within(_SEARCH_SECONDS)
        best = search_placement(found.graph, kernels, libraries, costs, lambda: ends.left > 0)
        self._tell(costs)
        takes = {place: library.takes for place, library in libraries.items()}
        known = (PlacesByOrder((place,))(found.graph, takes.__getitem__) for place in takes)  # they have forms
        return () if any(_there(best) == _there(whole) for whole in known) else best

    def _costs(self, trials: _Trials, deadline: Deadline) -> MeasuredCosts:
        """Return what says what parts take, until a deadline."""
        return MeasuredCosts(
            imported=self.imported, ctx=replace(self._ctx_apart, deadline=deadline), make=self.make, found=self._graph,
            offers=self._offers, knowledge=trials.knowledge, bench=trials.bench, all_cpu=trials.all_cpu,
        )  # fmt: skip

    def _tell(self, costs: MeasuredCosts) -> None:
        """Note which libraries failed at parts that were measured, a line each."""
        names = dict(enumerate(self.ctx.graph_libraries, 1))  # whole models have no library of their own
        for place, name in names.items():
            if place in costs.broken:
                self._failed[f"no further region was measured on {name}: at one, {costs.broken[place]}"] = None
            if place in costs.failed:
                self._failed[f"{name} runs no part like one that was measured: {costs.failed[place]}"] = None

    @property
    def _seconds(self) -> float:
        """For comparing whole models; where time is over they still run once each."""
        return max(0.0, self.ctx.deadline.within(_SECONDS).left)


def _there(groups: Iterable[PlacedSubgraph]) -> frozenset[PlacedSubgraph]:
    """Return what of a placement libraries run."""
    return frozenset(group for group in groups if group.backend != HOST)


def _times(
    form: Specialization, best: Record | None, measured: Mapping[str, Record], parts: Mapping[str, PartTimes]
) -> PlacementTimes:
    """Return what is known of a form that the `best` placement makes, or that runs on our kernels alone where none is
    better; `measured` are placements by name. `parts` took what was measured of them alone, and the only part of a form
    what the whole does."""
    if best is None:
        ours = min((record.default_s for record in measured.values()), default=None)
        return PlacementTimes(ours, ours, parts)
    if len(form.subgraphs) == 1 and not form.kernels:
        others = {name: each.ratio for name, each in measured.items() if each is not best and name != _MIXED}
        runner_up, ratio = min([(GENERATOR, 1.0), *others.items()], key=lambda each: each[1])
        parts = {next(iter(form.subgraphs)): PartTimes(best.seconds, runner_up, best.default_s * ratio)}
    return PlacementTimes(best.seconds, best.default_s, parts)


def _lines(
    names: Mapping[str, str], records: Sequence[Record], reasons: Mapping[str, str], *, base: str, how: str
) -> Iterator[str]:
    """Yield what the model took in each placement, whose `names` are by the keys of tasks, a sentence each; `reasons`
    are why some ran nothing, by name. `base` is what they are compared with, `how` what they do with a library."""
    for record in records:
        name, took, ours = names[record.task.key], record.seconds * 1e3, record.default_s * 1e3
        placed = f"{how} {name}" if name != _MIXED else name
        if not record.runs:
            if name != _MIXED:
                why = "it takes no operator, or failed or was wrong when it was measured before"
                yield f"{name} runs nothing: {reasons.get(name, why)}"
        elif record.wins:
            yield f"with {placed} the model takes {took:.3f} ms, {base} {ours:.3f} ms"
        else:
            yield f"{base} the model takes {ours:.3f} ms, and with {placed} {took:.3f} ms, no clear gain"
