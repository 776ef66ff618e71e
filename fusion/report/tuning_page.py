"""The page of a tuning job: times of models and families as they fell, what was expected of points and what they took,
where the time went, and the best points."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt
from pathlib import Path

import fusion
from fusion.errors import OptionError
from fusion.report.page import page_environment, write_html
from tuning.job_log import JobRound
from tuning.study import JudgedForecast, StudiedKernel, TuningStudy

_WIDEST = 2.0
"""Ratio of times at the edge of the chart of forecasts: what is beyond lies on the edge."""


@dataclass(frozen=True)
class Curve:
    """How a model, or a family of its kernels, got faster.

    Attributes:
        name: Of the family; "" for the whole model.
        spots: Seconds since the job began, and the share of the default's time.
    """

    name: str
    spots: tuple[tuple[float, float], ...]

    @property
    def last(self) -> float:
        """The share at the end."""
        return self.spots[-1][1]


@dataclass(frozen=True)
class ModelCurves:
    """The curves of a model, its own first.

    Attributes:
        before, after: Milliseconds of a run in the last round.
    """

    name: str
    curves: tuple[Curve, ...]
    before: float
    after: float


@dataclass(frozen=True)
class FamilyForecasts:
    """How well points of a family were foretold.

    Attributes:
        kernels, points: That were measured.
        tables, expected: By how much the logarithms of their times were wrong, the root of the mean of squares.
    """

    family: str
    kernels: int
    points: int
    tables: float
    expected: float


@dataclass(frozen=True)
class TimeShare:
    """A part of the time."""

    name: str
    seconds: float


def write_tuning_page(study: TuningStudy | None, path: str | Path, lines: Sequence[str]) -> None:
    """Write `path`, a page that needs nothing else; `lines` say in words what came of the job.

    Raises:
        OptionError: The file cannot be written, or the job ended before there was anything to show.
    """
    if study is None:
        raise OptionError("there is nothing to report", why="the job ended before its models were lowered")
    write_html(path, render_tuning(study, lines))


def render_tuning(study: TuningStudy, lines: Sequence[str]) -> str:
    """Return the page of a job."""
    judged = {
        (name, kernel.name): list(kernel.judged()) for name, kernels in study.networks.items() for kernel in kernels
    }
    curves = [made for name in study.networks if (made := curves_of(study, name)) is not None]
    return page_environment().get_template("tuning.html.j2").render(
        version=fusion.__version__, names=", ".join(study.networks), lines=lines, curves=curves,
        families=forecasts_of(study, judged), slices=[each for each in slices_of(study) if each.seconds > 0],
        judged=judged, widest=_WIDEST,
        rows=sorted(_rows(study), key=lambda row: -row[1].share * _gain(row[1])), log=log, min=min, max=max,
        rounds=study.log.rounds,
    )  # fmt: skip


def curves_of(study: TuningStudy, name: str) -> ModelCurves | None:
    """Return how a network got faster; None where no round of it was measured."""
    rounds = study.log.of(name)
    if not rounds:
        return None
    families = {kernel.name: kernel.family for kernel in study.networks[name]}
    own = Curve("", tuple((study.log.since(made), made.after / made.before) for made in rounds))
    of_families = _family_curves(rounds, families, study)
    return ModelCurves(name, (own, *of_families), rounds[-1].before * 1e3, rounds[-1].after * 1e3)


def _family_curves(rounds: Sequence[JobRound], families: Mapping[str, str], study: TuningStudy) -> Iterator[Curve]:
    spots: dict[str, list[tuple[float, float]]] = defaultdict(list)
    newest: dict[str, tuple[float, float]] = {}
    for made in rounds:
        newest |= {kernel: (took.seconds, took.default_s) for kernel, took in made.kernels.items()}
        for family in sorted(set(families.values())):
            times = [newest[kernel] for kernel, its in families.items() if its == family and kernel in newest]
            if times:
                share = sum(seconds for seconds, _ in times) / sum(default for _, default in times)
                spots[family].append((study.log.since(made), share))
    for family, some in spots.items():
        yield Curve(family, tuple(some))


def forecasts_of(
    study: TuningStudy, judged: Mapping[tuple[str, str], Sequence[JudgedForecast]]
) -> list[FamilyForecasts]:
    """Return how well points were foretold, by family; a kernel that several networks have counts once."""
    found: dict[str, dict[str, Sequence[JudgedForecast]]] = defaultdict(dict)
    for name, kernels in study.networks.items():
        for kernel in kernels:
            if judged[name, kernel.name]:
                found[kernel.family][kernel.search.known.task.key] = judged[name, kernel.name]
    return [_of_family(family, list(kernels.values())) for family, kernels in sorted(found.items())]


def _of_family(family: str, kernels: Sequence[Sequence[JudgedForecast]]) -> FamilyForecasts:
    points = [each for some in kernels for each in some]
    return FamilyForecasts(
        family=family,
        kernels=len(kernels),
        points=len(points),
        tables=_error([(each.tables, each.measured) for each in points]),
        expected=_error([(each.expected, each.measured) for each in points]),
    )


def _error(pairs: Sequence[tuple[float, float]]) -> float:
    return sqrt(sum(log(expected / measured) ** 2 for expected, measured in pairs) / len(pairs))


def slices_of(study: TuningStudy) -> list[TimeShare]:
    """Return where the time went."""
    rounds = study.log.rounds
    return [
        TimeShare("making networks of the models", study.lowering_s),
        TimeShare("choosing points and writing their loops", sum(made.times.choosing for made in rounds)),
        TimeShare("building", sum(made.times.building for made in rounds)),
        TimeShare("waiting for others", sum(made.times.waiting for made in rounds)),
        TimeShare("measuring", sum(made.times.measuring for made in rounds)),
        TimeShare("running before and after", study.verifying_s),
    ]


def _rows(study: TuningStudy) -> Iterator[tuple[str, StudiedKernel]]:
    for name, kernels in study.networks.items():
        for kernel in kernels:
            yield name, kernel


def _gain(kernel: StudiedKernel) -> float:
    return 0.0 if kernel.best is None else 1 - kernel.best.ratio
