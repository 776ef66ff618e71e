"""`python -m bench.devices.live`: models divided among two devices of one CPU each, against two pinned processes.

A process streams through the model on both devices; two others, each bound to one of the CPUs, run the whole model at a
time. Rounds alternate between them, so that what else the machine does falls on all.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from bench import command, markdown, zoo
from bench.devices.two_modules import add_options, same_results
from bench.remote import RemoteProcess
from fusion.system.cpus import cpu_numbers

_MODELS = ("resnet50", "bert_base", "mobilevit_s")
_INPUTS = 4
MODULE = "bench.devices.live_model"
_BOUTS = 8
"""Of calls of each process, in a round."""
_DEADLINE_S = 900.0
"""For compiling; to run takes seconds."""


@dataclass
class Divided:
    """One model.

    Attributes:
        expected: Milliseconds that the plans expect, by objective.
        stream: What a stream runs on.
        streamed, together: Requests a second of the stream, and of both processes at a time, a round each.
        call, alone: Milliseconds of a call on two devices, and of one pinned process alone.
        right: Whether both returned the same.
    """

    model: str
    expected: dict[str, float]
    stream: str
    right: bool
    streamed: list[float] = field(default_factory=list)
    together: list[float] = field(default_factory=list)
    call: list[float] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)


def main() -> int:
    """Return 0 if all results are right, 2 where there are not two CPUs, else 1."""
    options = _parser().parse_args()
    cpus = cpu_numbers()[:2]
    if len(cpus) < 2:
        print("this process may use one CPU only", file=sys.stderr)
        return 2
    found = []
    for name in options.models or _MODELS:
        found.append(measure(name, cpus, options.effort, options.rounds, options.seconds))
        print(_line(found[-1]), file=sys.stderr, flush=True)
    command.write(options.out, "devices-live", text(found), json.dumps([asdict(each) for each in found], indent=1))
    return 0 if all(each.right for each in found) else 1


def measure(name: str, cpus: Sequence[int], effort: str, rounds: int, seconds: float) -> Divided:
    """Return what the zoo model `name` does on two CPUs as devices, and in a process on each."""
    model = zoo.make(name)
    targets = [f"llvm:{cpu}-{cpu}" for cpu in cpus]
    inputs = [model.inputs(seed) for seed in range(_INPUTS)]
    with RemoteProcess(MODULE) as divided, RemoteProcess(MODULE) as first, RemoteProcess(MODULE) as second:
        # One after the other: the first measures kernels, and the others take what it chose; the one with plans is the
        # last, as what is expected hangs on the machine's clock.
        for process, where in ((first, cpus[0]), (second, cpus[1]), (divided, targets)):
            process.ask(_DEADLINE_S, "compile", model.path, model.shapes, effort, where)
            process.ask(_DEADLINE_S, "take", inputs)
        expected, stream = divided.ask(_DEADLINE_S, "plans")
        right = all(map(same_results, divided.ask(_DEADLINE_S, "outputs"), first.ask(_DEADLINE_S, "outputs")))
        found = Divided(name, expected, stream, right)
        for _ in range(rounds):
            found.streamed.append(divided.ask(_DEADLINE_S, "stream", seconds))
            for process in (first, second):
                process.begin("calls", seconds)
            found.together.append(first.end(_DEADLINE_S) + second.end(_DEADLINE_S))
            call, alone = calls_by_turns((divided, first), seconds)
            found.call.append(call)
            found.alone.append(alone)
    return found


def calls_by_turns(processes: Sequence[RemoteProcess], seconds: float) -> list[float]:
    """Return the milliseconds of a call of each process, medians of bouts by turns, each first in every other one: the
    clock of a machine changes by a tenth from half a second to the next, which in whole rounds decided the ratio."""
    found: dict[RemoteProcess, list[float]] = {process: [] for process in processes}
    for bout in range(_BOUTS):
        for process in processes if bout % 2 else reversed(processes):
            found[process].append(1e3 / process.ask(_DEADLINE_S, "calls", seconds / _BOUTS))
    return list(map(statistics.median, found.values()))


def text(found: Sequence[Divided]) -> str:
    """Return the report as Markdown."""
    header = (
        "model", "stream on", "stream, 1/s", "two processes, 1/s", "ratio", "expected, ms", "measured, ms", "off by",
        "times one alone: expected", "measured", "off by", "call on two, ms", "one alone, ms", "ratio",
        "one alone, slowest / fastest round", "right",
    )  # fmt: skip
    return "\n".join([
        "Medians over rounds; ratios are medians of those of each round. How many times as many requests a stream"
        " answers as one process alone hangs less on the machine's clock, which may have changed since the model was"
        " compiled.",
        "",
        markdown.table(header, [_row(each) for each in found]),
        "",
    ])  # fmt: skip


def _row(each: Divided) -> markdown.Row:
    measured, expected = 1e3 / statistics.median(each.streamed), each.expected["throughput"]
    gain = statistics.median(rate * alone / 1e3 for rate, alone in zip(each.streamed, each.alone, strict=True))
    expected_gain = each.expected["latency"] / expected
    return (
        each.model, each.stream, f"{statistics.median(each.streamed):.1f}",
        f"{statistics.median(each.together):.1f}", f"{_ratio(each.streamed, each.together):.3f}", f"{expected:.3f}",
        f"{measured:.3f}", f"{expected / measured - 1:+.1%}", f"{expected_gain:.2f}", f"{gain:.2f}",
        f"{expected_gain / gain - 1:+.1%}", f"{statistics.median(each.call):.3f}",
        f"{statistics.median(each.alone):.3f}", f"{_ratio(each.call, each.alone):.3f}",
        f"{max(each.alone) / min(each.alone):.2f}", "yes" if each.right else "NO",
    )  # fmt: skip


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return statistics.median(own / other for own, other in zip(ours, theirs, strict=True))


def _line(each: Divided) -> str:
    return f"{each.model}: {_ratio(each.streamed, each.together):.3f} of two processes"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.devices.live", description=__doc__)
    add_options(parser, _MODELS, rounds=5, measurements="four")
    return parser


if __name__ == "__main__":
    command.run(main)
