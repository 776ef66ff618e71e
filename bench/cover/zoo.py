"""`python -m bench.cover.zoo`: models of the zoo placed on all backends by measuring, against the best engine alone.

Each model is compiled with all backends three times, each in a process of its own: from nothing, from what the first
one measured, and as a user does who compiles it once more. Then it runs beside our kernels alone, measured too, ONNX
Runtime and OpenVINO, in interleaved rounds. Where all stays on cpu, so that both files of ours have the same code and
weights, one of them runs: two processes of one program would tell what the rounds cannot. What is compiled stays in the
folder of `--keep`, so that one call may compile and another one time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import command, markdown, protocol, zoo
from bench.peers import OURS
from bench.peers.engine import Compiled, Job
from bench.protocol import ComparisonPlan
from bench.remote import EngineError, RemoteProcess, Worker
from bench.result import ComparisonResult, EngineResult, Ratio, notes
from fusion.module.archive import MANIFEST

BACKENDS = ("onednn", "onnxruntime", "openvino", "cpu")
ALONE, DEFAULT = "fusion on cpu", "fusion by default"
_ALONE = (ALONE, DEFAULT)
_OURS = ("cpu", "onnxruntime")
_PEERS = ("onnxruntime", "openvino")
_MODULE = "bench.cover.placing"
_DEADLINE_S = 1800.0
_LOSES, _GAINS = 0.98, 1.03
"""Of the best engine alone: what no placement should be below, and what counts as a gain."""


@dataclass(frozen=True)
class Compilation:
    """One compilation of a model.

    Attributes:
        seconds: What it took, without imports.
        placement: Where the model runs, in a line.
        notes: What was measured of placements, a sentence each.
    """

    seconds: float
    placement: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class PlacedModel:
    """What compiling a model took.

    Attributes:
        first: From nothing.
        known: From what was measured by the first.
        again: As any user does who compiles the same model once more.
        alone: For our kernels alone, which were measured.
        default: For our kernels alone, by the default effort, which measures nothing.
    """

    first: Compilation
    known: Compilation
    again: Compilation
    alone: Compilation
    default: Compilation


@dataclass(frozen=True)
class ModelFolder:
    """What is kept of a model, each step of which is done once.

    Attributes:
        folder: Where it lies; its caches and records are nobody else's.
    """

    folder: Path

    @property
    def placed(self) -> Path:
        """The module that is placed on all backends."""
        return self.folder / "placed.fusion"

    @property
    def alone(self) -> Path:
        """That of our kernels alone."""
        return self.folder / "alone.fusion"

    @property
    def default(self) -> Path:
        """That of our kernels alone, by the default effort."""
        return self.folder / "default.fusion"

    @property
    def others(self) -> dict[str, Path]:
        """The modules of our kernels alone that have other code or weights than what is placed, by engine."""
        placed = _program_of(self.placed)
        ours = {ALONE: self.alone, DEFAULT: self.default}
        return {name: path for name, path in ours.items() if _program_of(path) != placed}

    def compile(
        self, step: str, job: Job, backends: Sequence[str], saved: Path | None = None, *, cache: bool = False,
        records: str = "cache",
    ) -> Compilation:
        """Return what a step takes, in a process of its own, with the `records` of a name.

        Raises:
            EngineError: It fails.
        """
        path = self.folder / f"{step}.json"
        if path.exists():
            fields = json.loads(path.read_text())
            return Compilation(**{**fields, "notes": tuple(fields["notes"])})
        self.folder.mkdir(parents=True, exist_ok=True)
        with RemoteProcess(_MODULE, environment={"FUSION_CACHE": str(self.folder / records)}) as process:
            found = Compilation(*process.ask(_DEADLINE_S, "compile", job, backends, saved, cache))
        path.write_text(json.dumps(asdict(found)))
        return found


def main() -> int:
    """Return 0 if every model ran and is right, 2 without an engine that is needed, else 1."""
    options = _parser().parse_args()
    models = options.models or zoo.available(zoo.BEYOND if options.beyond else zoo.ZOO)
    found: list[tuple[PlacedModel, ComparisonResult]] = []
    with TemporaryDirectory(prefix="fusion-cover-") as temporary:
        for name in models:
            kept = ModelFolder((options.keep or Path(temporary)) / name)
            try:
                placed = place(_job(name, options), kept)
                print(f"{name}: {placed.first.placement}", file=sys.stderr, flush=True)
                if not options.compile:
                    found.append((placed, _compared(name, kept, options)))
                    print(_line(found[-1][1]), file=sys.stderr, flush=True)
            except EngineError as error:
                print(f"{name}: {error}", file=sys.stderr)
                return 2
    if found:
        command.write(options.out, "cover-zoo", text(found), as_json(found))
    return 0 if all(result.passed for _, result in found) else 1


def place(job: Job, kept: ModelFolder) -> PlacedModel:
    """Return what compiling `job` takes, and leave it placed and alone in the folder.

    Raises:
        EngineError: It does not compile.
    """
    return PlacedModel(
        first=kept.compile("first", job, BACKENDS, cache=True),
        known=kept.compile("known", job, BACKENDS, kept.placed),
        again=kept.compile("again", job, BACKENDS, cache=True),
        alone=kept.compile("alone", job, _OURS, kept.alone),
        default=kept.compile("default", replace(job, effort="fast"), _OURS, kept.default, records="cache-default"),
    )


def compare(job: Job, plan: ComparisonPlan, kept: ModelFolder, model: zoo.ZooModel) -> ComparisonResult:
    """Return how fast the placed model is beside each engine alone.

    Raises:
        EngineError: ONNX Runtime, which all are checked against, failed.
    """
    result = ComparisonResult(model.name, {name: tuple(shape) for name, shape in job.shapes.items()}, plan.threads)
    others = {name: _saved(job, path) for name, path in kept.others.items()}
    jobs = {OURS: _saved(job, kept.placed), **others, **dict.fromkeys(_PEERS, job)}
    result.engines = {name: EngineResult() for name in jobs}
    with TemporaryDirectory(prefix="fusion-cover-") as folder, contextlib.ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for name, each in jobs.items():
            with protocol.noting(result.engines[name]):
                workers[name] = protocol.start(
                    OURS if each.compiled else name, each,
                    plan=plan, folder=Path(folder), result=result.engines[name], stack=stack,
                )  # fmt: skip
        protocol.check(job, plan, workers, result.engines, {seed: model.inputs(seed) for seed in range(plan.checks)})
        protocol.time_rounds(plan, workers, result.engines, model.inputs)
    return result


def _saved(job: Job, path: Path) -> Job:
    return replace(job, compiled=Compiled(path, 0.0))


def _job(name: str, options: argparse.Namespace) -> Job:
    model = zoo.make(name, options.cache)
    return Job(model.path.resolve(), model.shapes, options.threads, zoo_name=name, effort="balanced")


def _compared(name: str, kept: ModelFolder, options: argparse.Namespace) -> ComparisonResult:
    plan = ComparisonPlan(options.threads, options.rounds, options.seconds, checks=1)
    return compare(_job(name, options), plan, kept, zoo.make(name, options.cache))


def best_alone(result: ComparisonResult, ours: str = ALONE) -> tuple[str, Ratio] | None:
    """Return the engine that is fastest alone of `ours` and the peers, and its latency over that of the placed model:
    of ours 1 where they were not timed, as they are the placed model."""
    if not result.ratios:
        return None
    same = {ours: Ratio(1.0, 1.0, 1.0)}
    return min({**same, **_of(result, (ours, *_PEERS))}.items(), key=lambda each: each[1].median)


def best_peer(result: ComparisonResult) -> tuple[str, Ratio] | None:
    """Return the engine that is fastest alone of those that are not ours, and its latency over the placed model's."""
    return min(_of(result, _PEERS).items(), key=lambda each: each[1].median, default=None)


def best_beside_default(result: ComparisonResult) -> tuple[str, Ratio] | None:
    """Return `best_alone` with our kernels by the default effort, which measures nothing."""
    return best_alone(result, DEFAULT)


def _of(result: ComparisonResult, names: Sequence[str]) -> dict[str, Ratio]:
    return {name: ratio for name, ratio in result.ratios.items() if name in names}


def _program_of(path: Path) -> dict[str, tuple[int, int]]:
    """Return the size and checksum of each member of a saved module but the one that tells what was measured."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    return {each.filename: (each.file_size, each.CRC) for each in members if each.filename != MANIFEST}


def _line(result: ComparisonResult) -> str:
    best, by_default, peer = best_alone(result), best_beside_default(result), best_peer(result)
    if best is None or by_default is None or peer is None:
        return f"{result.model}: no numbers"
    return f"{result.model}: " + ", ".join(f"{ratio.median:.3f} of {name}" for name, ratio in (best, by_default, peer))


def text(found: Sequence[tuple[PlacedModel, ComparisonResult]]) -> str:
    """Return the report as Markdown."""
    header = (
        "model", "placed ms", *(f"{name} ms" for name in (*_ALONE, *_PEERS)), "over the better peer", "best alone",
        "ratio", "with ours by default", "search s", "with records s", "again s", "right", "placement",
    )  # fmt: skip
    kinds = {"alone": best_alone, "with ours by the default effort": best_beside_default, "peer": best_peer}
    ratios_of = {
        kind: [best[1].median for _, each in found if (best := of(each))] for kind, of in kinds.items()
    }
    return "\n".join([
        markdown.table(header, [_row(placed, result) for placed, result in found]),
        "",
        "ratio = median over the rounds of (latency of the engine that is fastest alone / latency when placed); "
        "ours are as fast where they are the same program.",
        *(
            f"Of the best {kind}, below {_LOSES}: {sum(each < _LOSES for each in ratios)} of {len(ratios)}; "
            f"above {_GAINS}: {sum(each > _GAINS for each in ratios)}."
            for kind, ratios in ratios_of.items()
        ),
        *(f"- {result.model}: {note}" for placed, result in found for note in placed.first.notes),
        *(note for _, result in found for note in notes(result)),
        "",
    ])  # fmt: skip


def _row(placed: PlacedModel, result: ComparisonResult) -> markdown.Row:
    latencies: Mapping[str, str] = {
        name: markdown.milliseconds(each.latency_ms) for name, each in result.engines.items()
    }
    peer, best, beside_default = best_peer(result), best_alone(result), best_beside_default(result)
    return (
        result.model, latencies[OURS], *(latencies.get(name, "the same program") for name in _ALONE),
        *(latencies[name] for name in _PEERS),
        _ratio(peer[1]) if peer else "", best[0] if best else "", _ratio(best[1]) if best else "",
        _ratio(beside_default[1]) if beside_default else "",
        f"{placed.first.seconds:.1f}", f"{placed.known.seconds:.1f}", f"{placed.again.seconds:.2f}",
        "yes" if result.passed else "NO", placed.known.placement.partition(";")[0],
    )  # fmt: skip


def _ratio(ratio: Ratio) -> str:
    spread = f" ({ratio.low:.2f}-{ratio.high:.2f})" if ratio.low < ratio.high else ""
    return f"{ratio.median:.3f}{spread}"


def as_json(found: Sequence[tuple[PlacedModel, ComparisonResult]]) -> str:
    """Return the report as JSON: a list of models."""
    return json.dumps([{"placed": asdict(placed), **result.as_dict()} for placed, result in found], indent=1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.cover.zoo", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="of either set; default: all of the first")
    parser.add_argument("--beyond", action="store_true", help="all of the second set, which nobody tuned for")
    parser.add_argument("--keep", type=Path, help="folder for what is compiled: what lies there is only timed")
    parser.add_argument("--compile", action="store_true", help="compile, and time nothing")
    parser.add_argument("--cache", type=Path, help="folder of the zoo (default: the user's cache)")
    command.add_timing(parser, ComparisonPlan.round_s, "engine")
    return parser


if __name__ == "__main__":
    command.run(main)
