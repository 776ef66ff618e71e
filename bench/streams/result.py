"""What a stream of shapes found, as data; `bench.streams.report` prints it."""

from __future__ import annotations

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.peers import OURS
from bench.result import EngineResult

Shapes = Mapping[str, tuple[int, ...]]
STALL = 10.0
"""How many times as long as usual a stalled call takes."""


@dataclass(frozen=True)
class StaticForm:
    """One shape of the stream, compiled by itself.

    Attributes:
        call: Its place in the stream.
        open_s: Seconds of a call of the form for all sizes, the median of some.
        static_s: The same of a module that was compiled for this shape alone; the calls of both take turns.
    """

    call: int
    open_s: float
    static_s: float

    @property
    def ratio(self) -> float:
        """What leaving the shape open costs: 1 is nothing."""
        return self.open_s / self.static_s


@dataclass(frozen=True)
class Costs:
    """What a form costs beside its calls, each in a process of its own.

    Attributes:
        compile_s: Seconds of compiling it: of opening the model and the first call, but for what that takes once more.
        compiling_bytes: Peak memory of that, beyond what was resident once the libraries were imported.
        running_bytes: The same of loading it and running calls.
        file_bytes: Size of the saved file; None where there is no linker to save it with.
    """

    compile_s: float
    compiling_bytes: int
    running_bytes: int
    file_bytes: int | None


@dataclass(frozen=True)
class AgainstStatic:
    """The form for all sizes beside forms for one size each.

    Attributes:
        largest: The call of the largest shape.
        opened: Costs of the form for all sizes, with calls of all shapes of `forms` and the largest.
        static: Costs of the form for the largest shape alone.
        forms: Calls of shapes that are spread over those of the stream.
    """

    largest: int
    opened: Costs
    static: Costs
    forms: Sequence[StaticForm]


@dataclass
class StreamResult:
    """All engines on one stream.

    Attributes:
        model: Name in the zoo, or file name.
        calls: The shapes of the inputs of each call.
        threads: Threads each engine had.
        engines: Of each its seconds of opening, peak memory, verdict of the float64 gate, or why it has no numbers.
        passes: By engine the seconds of each call, pass by pass.
        errors: By engine the largest error of a call against ONNX Runtime, on samples of the outputs.
        wrong: By engine one sentence for each output of a call that is wrong by that measure.
        checked: The calls whose shapes went through the float64 gate.
        compiling: The calls in which ours compiled, counted through all passes; their seconds are those of the calls.
        forms: How many forms ours had in the end; None where that is not known.
        against: Ours against static forms; None where that was not asked for, or failed.
        no_statics: Why it failed, or empty.
    """

    model: str
    calls: Sequence[Shapes]
    threads: int
    engines: dict[str, EngineResult]
    passes: dict[str, list[list[float]]] = field(default_factory=lambda: defaultdict(list))
    errors: dict[str, float] = field(default_factory=dict)
    wrong: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    checked: list[int] = field(default_factory=list)
    compiling: list[int] = field(default_factory=list)
    forms: int | None = None
    against: AgainstStatic | None = None
    no_statics: str = ""

    @property
    def passed(self) -> bool:
        """Whether ours ran the whole stream, and was right in all of it and by the float64 gate."""
        ours = self.engines[OURS]
        return not ours.failure and not self.wrong[OURS] and ours.verdict is not None and ours.verdict.passed

    def whole_s(self, engine: str) -> float | None:
        """Return the seconds of opening the model and of the first pass; None of an engine that failed."""
        result = self.engines[engine]
        return None if result.failure or result.load_s is None else result.load_s + sum(self.passes[engine][0])

    @property
    def most_passes(self) -> int:
        """How many passes there are of an engine that ran all."""
        return max(map(len, self.passes.values()), default=0)

    def complete(self) -> Iterator[tuple[str, list[list[float]]]]:
        """Yield the engines that ran the whole stream, with their passes."""
        for name, engine in self.engines.items():
            if not engine.failure and self.passes[name]:
                yield name, self.passes[name]

    def usual_s(self) -> list[float]:
        """Return for each call what its shape usually takes: the median of its calls in the last pass of the engine for
        which that is least.

        Of all engines, as one that compiles a shape each time it comes would otherwise be measured by its own stalls.
        """
        places: dict[tuple[tuple[str, tuple[int, ...]], ...], list[int]] = defaultdict(list)
        for place, shapes in enumerate(self.calls):
            places[tuple(shapes.items())].append(place)
        usual = [0.0] * len(self.calls)
        for same in places.values():
            last = [[passes[-1][place] for place in same] for _, passes in self.complete()]
            for place in same:
                usual[place] = min(statistics.median(times) for times in last)
        return usual

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON: every field, with what follows from them."""
        usual = self.usual_s()
        return {
            "model": self.model, "threads": self.threads, "calls": [dict(shapes) for shapes in self.calls],
            "passed": self.passed, "checked": self.checked, "forms": self.forms, "compiling": self.compiling,
            "engines": {
                name: {
                    "open_s": engine.load_s, "whole_s": self.whole_s(name),
                    "peak_rss": engine.peak_rss, "base_rss": engine.base_rss,
                    "failure": engine.failure, "error": self.errors.get(name), "wrong": self.wrong[name],
                    "verdict": None if engine.verdict is None else dataclasses.asdict(engine.verdict),
                    "passes_s": self.passes[name],
                    "stalls": [stalls(times, usual) for times in self.passes[name]],
                }
                for name, engine in self.engines.items()
            },
            "no_statics": self.no_statics,
            "against": None if self.against is None else dataclasses.asdict(self.against),
        }  # fmt: skip


def stalls(times: Sequence[float], usual: Sequence[float]) -> int:
    """Return how many of `times` are more than `STALL` times as long as is usual for their shape."""
    return sum(seconds > STALL * known for seconds, known in zip(times, usual, strict=True))


def describe(shapes: Shapes) -> str:
    """Return the shapes of a call in a few words, one for all inputs that have the same."""
    names: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for name, shape in shapes.items():
        names[shape].append(name)
    return ", ".join(f"{'/'.join(same)} {'x'.join(map(str, shape)) or 'scalar'}" for shape, same in names.items())
