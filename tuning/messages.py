"""What the process that measures is asked and what it answers: one line of JSON each."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from tuning.decide import CandidateTimes, Decision


class ServerLostError(Exception):
    """Says why the server that measures is gone."""


@dataclass(frozen=True)
class Trial:
    """A candidate of a kernel, both by their numbers in the experiment."""

    kernel: int
    candidate: int


@dataclass(frozen=True)
class Question:
    """Asks for the measurement of an experiment.

    Attributes:
        experiment: Path of the file that describes it.
        skipped: Candidates that are not to be run.
    """

    experiment: str
    skipped: tuple[Trial, ...]


@dataclass(frozen=True)
class Trying:
    """Says that a candidate is about to run for the first time, so that a crash is known to be its own."""

    trial: Trial


@dataclass(frozen=True)
class Comparing:
    """Says that all candidates have run once, and that nothing more is said until they are compared."""


@dataclass(frozen=True)
class MeasuredNetwork:
    """The result of an experiment.

    Attributes:
        decisions: What `decide` says of each kernel.
        before, after: Seconds of the network without and with that.
        reasons: Why some candidates were not measured, though nothing ended.
    """

    decisions: tuple[Decision, ...]
    before: float
    after: float
    reasons: tuple[tuple[Trial, str], ...] = ()


@dataclass(frozen=True)
class Failed:
    """Says why there is no result."""

    why: str


@dataclass(frozen=True)
class Lost:
    """Says why the server that measured does so no more, or that there is none."""

    why: str


@dataclass(frozen=True)
class ServerFacts:
    """Says which server measures, and what its machine is.

    Attributes:
        address: Of the server.
        model: What kind of CPU it has, as `fusion.system.cpus.cpu_model` tells it.
        flags: Its `/proc/cpuinfo`.
        threads: That kernels take there if nobody says.
        cpu, triple: LLVM's names of its CPU and system; "" where it has no compiler.
        features: LLVM's features of its CPU, as `ffi.ToJSONGraphString` writes a map.
    """

    address: str
    model: str
    flags: str
    threads: int
    cpu: str
    triple: str
    features: str


Answer = Trying | Comparing | MeasuredNetwork | Failed | Lost | ServerFacts


def write_question(question: Question) -> str:
    """Return the line of a question."""
    return json.dumps(asdict(question))


def read_question(line: str) -> Question:
    """Return the question of a line."""
    fields: dict[str, Any] = json.loads(line)
    return Question(fields["experiment"], tuple(Trial(**trial) for trial in fields["skipped"]))


def write_answer(answer: Answer) -> str:
    """Return the line of an answer."""
    return json.dumps({"kind": type(answer).__name__, **asdict(answer)})


def read_answer(line: str) -> Answer:
    """Return the answer of a line."""
    fields: dict[str, Any] = json.loads(line)
    if fields["kind"] == Trying.__name__:
        return Trying(Trial(**fields["trial"]))
    if fields["kind"] == Comparing.__name__:
        return Comparing()
    if fields["kind"] in (Failed.__name__, Lost.__name__):
        return (Failed if fields["kind"] == Failed.__name__ else Lost)(fields["why"])
    if fields.pop("kind") == ServerFacts.__name__:
        return ServerFacts(**fields)
    decisions = tuple(_decision(**decision) for decision in fields["decisions"])
    reasons = tuple((Trial(**trial), why) for trial, why in fields["reasons"])
    return MeasuredNetwork(decisions, fields["before"], fields["after"], reasons)


def _decision(times: list[dict[str, Any]], **fields: Any) -> Decision:
    return Decision(**fields, times=tuple(CandidateTimes(**found) for found in times))
