"""Measures kernels without a network around them: what a cost model learns from, and is judged by."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tvm_ffi
from tvm import tirx

from backends.tensorir.space import Point
from backends.tensorir.stages import dtype_of, shape_of
from fusion.tensors import tensor_bytes
from tuning.build import build_library
from tuning.canonical import canonical
from tuning.experiment import Experiment, LibraryCall, Step
from tuning.filled_tensors import FilledTensors
from tuning.known import KnownKernel
from tuning.measuring_session import MeasuringSession, Results
from tuning.record import Record
from tuning.toolchain import Toolchain

_COPIED_BYTES = 32 << 20
"""Of copies of a kernel's weights, beside the default's: more than L2 holds."""


@dataclass(frozen=True)
class SpaceQuestion:
    """A kernel and some points of its space.

    Attributes:
        source: The kernel before it has loops.
        known: Its space and its task.
        weights: Places of its parameters that are constants of the model.
        points: Beside the default, which is always measured.
    """

    source: tirx.PrimFunc
    known: KnownKernel
    weights: Collection[int]
    points: Sequence[Point]

    @property
    def copies(self) -> int:
        """How many copies of its weights candidates take by turns."""
        constants = [self.source.params[place] for place in self.weights]
        size = sum(tensor_bytes(shape_of(constant), dtype_of(constant)) for constant in constants)
        return max(1, _COPIED_BYTES // max(size, 1))


@dataclass(frozen=True)
class BuiltQuestion:
    """A question of which the candidates have code.

    Attributes:
        points: Of the candidates, the default's first.
        functions: Their loops, by symbol, in the same order.
    """

    question: SpaceQuestion
    points: Sequence[Point]
    functions: Mapping[str, tirx.PrimFunc]


@dataclass(frozen=True)
class BuiltLibrary:
    """Code of several questions' candidates."""

    path: Path
    questions: Sequence[BuiltQuestion]


def build_questions(
    questions: Sequence[SpaceQuestion],
    toolchain: Toolchain,
    path: Path,
    over: Callable[[], bool],
) -> BuiltLibrary:
    """Write a library with the candidates of `questions`; those are left out for which there was no time, or of which
    the template does not take the default."""
    made = [_candidates(question, f"q{place}") for place, question in enumerate(questions)]
    # The first candidates of all, then the second ones: where time ends, each question has some.
    longest = max((len(found) for found in made), default=0)
    order = [found[turn] for turn in range(longest) for found in made if turn < len(found)]
    built = build_library([(symbol, func) for symbol, _, func in order], toolchain, path, over)
    answers = []
    for question, found in zip(questions, made, strict=True):
        have = [entry for entry in found if entry[0] in built]
        if len(have) > 1 and have[0] == found[0]:
            functions = {symbol: func for symbol, _, func in have}
            answers.append(BuiltQuestion(question, [point for _, point, _ in have], functions))
    return BuiltLibrary(path, answers)


def measure_questions(
    library: BuiltLibrary, session: MeasuringSession, threads: int, runs: int, seconds: float
) -> list[Record]:
    """Return what the candidates of `library` take, each run as often as the others and between those of other kernels,
    on weights of its own, so that they come from where those of a network do; what a kernel reads beside them was read
    by another run of it just before."""
    experiment = _experiment(library, threads, runs, seconds)
    return list(_records(library, session.run(experiment)))


def measured_points(known: KnownKernel, records: Iterable[Record]) -> list[tuple[Point, float]]:
    """Return the points of a space that were measured alone, the default first, with the seconds of each; none where
    the default is not among them, or is alone."""
    seconds = {canonical(record.point): record.seconds for record in records if record.task == known.task}
    space = known.choices.space
    others = (point for point in space if point != space.default)
    points = [(point, seconds.get(canonical(point.axes()))) for point in (space.default, *others)]
    found = [(point, took) for point, took in points if took]
    return found if len(found) > 1 and found[0][0] == space.default else []


def _candidates(question: SpaceQuestion, name: str) -> list[tuple[str, Point, tirx.PrimFunc]]:
    """Return the default and the points, without those whose loops another one has already; nothing where the
    template does not take the default: the others' times are compared with its."""
    found: list[tuple[str, Point, tirx.PrimFunc]] = []
    for point in (question.known.choices.space.default, *question.points):
        made = question.known.choices.emit(point)
        if made.note and not found:
            return []
        if not made.note and not any(tvm_ffi.structural_equal(made.func, func) for _, _, func in found):
            found.append((f"{name}_{len(found)}", point, made.func))
    return found


def _experiment(library: BuiltLibrary, threads: int, runs: int, seconds: float) -> Experiment:
    memory, steps = FilledTensors(), list[Step]()
    for place, built in enumerate(library.questions):
        first, *_ = built.functions.items()
        steps.append(Step(2 * place, ((_call(memory, place, built.question, *first, copy=0),),)))
        # Weights that many candidates pack alike would be in L2 for these, and for the others not.
        calls = (
            _call(memory, place, built.question, symbol, func, copy=1 + turn % built.question.copies)
            for turn, (symbol, func) in enumerate(built.functions.items())
        )
        steps.append(Step(2 * place + 1, tuple((call,) for call in calls)))
    return Experiment(
        libraries=(str(library.path),),
        data="",
        storages=tuple(memory.storages),
        tensors=tuple(memory.tensors),
        steps=tuple(steps),
        threads=threads,
        seconds=seconds,
        evenly=runs,
    )


def _records(library: BuiltLibrary, results: Results) -> Iterator[Record]:
    now = time.time()
    for built, decision in zip(library.questions, results.decisions[1::2], strict=False):
        for found in decision.times:
            # No point wins here: that says a network.
            point = built.points[found.candidate]
            yield found.record(built.question.known.task, point.axes(), wins=False, measured_at=now)
    for trial in results.crashed:
        built = library.questions[trial.kernel // 2]
        yield Record.of_failure(built.question.known.task, built.points[trial.candidate].axes(), now)


def _call(
    memory: FilledTensors, place: int, question: SpaceQuestion, symbol: str, made: tirx.PrimFunc, *, copy: int
) -> LibraryCall:
    """Return the call of a candidate, for one of the copies of its weights; they share what else it takes."""
    tensors = (
        memory.tensor((place, source, copy if index in question.weights else 0), parameter)
        for index, (source, parameter) in enumerate(zip(question.source.params, made.params, strict=True))
    )
    return LibraryCall(symbol, tuple(tensors))
