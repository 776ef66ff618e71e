"""What was found, and what it has to reach; `bench.gpu.report` prints it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from bench.gate import Verdict
from bench.gpu.engines import EAGER, MAX_AUTOTUNE, OURS
from bench.gpu.subjects import ATTENTION, FLOATS, KERNELS, MEMORY, MODEL, PRODUCT, Subject

MEMORY_SHARE, PRODUCT_SHARE, MODELS_MEAN, COMPILE_SHARE = 0.85, 0.70, 1.0, 0.25
"""What issue 22 asks for: of the copy bandwidth, of torch's and cuBLASLt's rate, of the speed of `max-autotune` over
the zoo at batch 1, and of the time it takes to compile."""
_ITEM_BYTES = {"float32": 4, "float16": 2}


@dataclass
class DeviceResult:
    """One engine on one subject.

    Attributes:
        rounds_s: Median seconds of a call, of each round.
        load_s: Until its first result: compiling, searching and capturing.
        verdict: What the float64 gate says; None where it did not run.
        failure: Why there are no numbers.
    """

    rounds_s: list[float] = field(default_factory=list)
    load_s: float | None = None
    verdict: Verdict | None = None
    failure: str = ""

    @property
    def seconds(self) -> float | None:
        """The median of the rounds."""
        return statistics.median(self.rounds_s) if self.rounds_s else None


@dataclass
class SubjectResult:
    """All engines on one subject."""

    subject: Subject
    engines: dict[str, DeviceResult] = field(default_factory=dict)

    def ratio(self, engine: str) -> float | None:
        """Return the median over the rounds of an engine's time over ours: above 1, fusion is faster."""
        ours, theirs = (self.engines.get(name, DeviceResult()).rounds_s for name in (OURS, engine))
        if not ours or len(ours) != len(theirs):
            return None
        return statistics.median(other / own for other, own in zip(theirs, ours, strict=True))

    def least_ratio(self) -> float | None:
        """Return the ratio to the fastest other engine."""
        found = [ratio for name in self.engines if name != OURS and (ratio := self.ratio(name)) is not None]
        return min(found, default=None)

    def gbs(self) -> float | None:
        """Return what our kernel moves, in 1e9 bytes a second; None where memory is no limit, or it did not run."""
        seconds = self.engines.get(OURS, DeviceResult()).seconds
        case = KERNELS.get(self.subject.name)
        if seconds is None or case is None or case.kind != MEMORY:
            return None
        return case.moved_bytes(self.subject.batch, _ITEM_BYTES[self.subject.dtype]) / seconds / 1e9

    def tflops(self) -> float | None:
        """Return the rate of our kernel in 1e12 operations a second; None of what multiplies nothing, and of models."""
        seconds = self.engines.get(OURS, DeviceResult()).seconds
        case = KERNELS.get(self.subject.name)
        return self.subject.batch * case.flops / seconds / 1e12 if case and case.flops and seconds else None

    def compile_share(self) -> float | None:
        """Return our time to compile over that of `max-autotune`."""
        ours, theirs = (self.engines.get(name, DeviceResult()).load_s for name in (OURS, MAX_AUTOTUNE))
        return None if ours is None or not theirs else ours / theirs

    @property
    def passed(self) -> bool:
        """Whether ours ran and its outputs passed the gate."""
        verdict = self.engines.get(OURS, DeviceResult()).verdict
        return verdict is not None and verdict.passed


@dataclass(frozen=True)
class Goal:
    """What is to be reached.

    Attributes:
        what: In words.
        value: The least that was found, or the mean; None where nothing was measured.
        bound: What it has to be at least, or at most where `is_most`.
    """

    what: str
    value: float | None
    bound: float
    is_most: bool = False

    @property
    def is_reached(self) -> bool:
        """Whether it is; what was not measured is not."""
        if self.value is None:
            return False
        return self.value <= self.bound if self.is_most else self.value >= self.bound


@dataclass(frozen=True)
class DeviceReport:
    """A run.

    Attributes:
        device: What the device is, in words.
        copy_gbs: What a copy of an array moves there, measured beside; None where that failed.
    """

    device: str
    copy_gbs: float | None
    subjects: Sequence[SubjectResult]

    def of_kind(self, *kinds: str) -> list[SubjectResult]:
        """Return the results of these kinds."""
        return [each for each in self.subjects if each.subject.kind in kinds]

    def goals(self) -> list[Goal]:
        """Return what is to be reached, with what was, for the kinds that were run."""
        found = []
        if memory := self.of_kind(MEMORY):
            found.append(Goal("share of the copy bandwidth, least", _least(memory, self.memory_share), MEMORY_SHARE))
        if products := self.of_kind(PRODUCT, ATTENTION):
            ratio = _least(products, SubjectResult.least_ratio)
            found.append(Goal("products and attention against the fastest other, least", ratio, PRODUCT_SHARE))
        if models := self.of_kind(MODEL):
            found += [*self._models(models), _compile_goal(models)]
        return found

    def memory_share(self, result: SubjectResult) -> float | None:
        """Return the share of the copy bandwidth that our kernel reaches."""
        moved = result.gbs()
        return None if moved is None or not self.copy_gbs else moved / self.copy_gbs

    def _models(self, models: Sequence[SubjectResult]) -> list[Goal]:
        goals = []
        for precision in FLOATS:
            alone = [each for each in models if each.subject.batch == 1 and each.subject.precision == precision]
            if alone:
                what = f"models at batch 1 in {precision} against {MAX_AUTOTUNE}, geometric mean"
                goals.append(Goal(what, geometric_mean(alone, MAX_AUTOTUNE), MODELS_MEAN))
        return goals

    def worst(self, count: int = 3) -> list[SubjectResult]:
        """Return the subjects that do worst against the fastest other engine."""
        rated = [(ratio, each) for each in self.subjects if (ratio := each.least_ratio()) is not None]
        return [each for _, each in sorted(rated, key=lambda pair: pair[0])[:count]]

    @property
    def passed(self) -> bool:
        """Whether all that was run is right, and reaches what it has to."""
        return all(each.passed for each in self.subjects) and all(goal.is_reached for goal in self.goals())


def geometric_mean(results: Iterable[SubjectResult], engine: str) -> float | None:
    """Return the geometric mean of the ratios to an engine; None where one of them is missing, as a mean of the others
    would leave out what failed."""
    ratios = [result.ratio(engine) for result in results]
    known = [ratio for ratio in ratios if ratio is not None]
    return statistics.geometric_mean(known) if known and len(known) == len(ratios) else None


def _compile_goal(models: Sequence[SubjectResult]) -> Goal:
    shares = [each.compile_share() for each in models]
    known = [share for share in shares if share is not None]
    value = max(known) if known and len(known) == len(shares) else None
    return Goal(f"time to compile a model against {MAX_AUTOTUNE}, most", value, COMPILE_SHARE, is_most=True)


def _least(results: Sequence[SubjectResult], rate: Callable[[SubjectResult], float | None]) -> float | None:
    rates = [rate(result) for result in results]
    known = [each for each in rates if each is not None]
    return min(known) if known and len(known) == len(rates) else None


BASELINE = EAGER
"""The engine whose error measures what is allowed."""
