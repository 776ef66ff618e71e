"""`python -m bench.batches`: models of the zoo with an open batch, several batches of each from one module."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time

import bench.peers
from bench import command, zoo
from bench.batches import report
from bench.batches.images import BatchImages
from bench.batches.measure import BatchPlan, run_batches
from bench.batches.result import BatchesResult
from bench.machine import measure_machine
from bench.peers.engine import Job
from bench.remote import EngineError
from fusion.errors import FusionError, OptionError

_MINUTE = 60.0


def main() -> int:
    """Return 0 if fusion ran every batch of every model and was right, 1 if not or models are left, 2 for wrong
    options."""
    options = _parser().parse_args()
    try:
        plan = _plan(options)
        machine = measure_machine(options.threads)
        results = _results(options, plan)
    except (FusionError, EngineError) as error:
        print(error, file=sys.stderr)
        return 2
    command.write(options.out, "batches", report.text(results, machine), report.as_json(results, machine))
    left = len(_models(options)) - len(results)
    if left:
        print(f"there was no time for {left} models: --resume goes on", file=sys.stderr)
    return 0 if not left and all(result.passed for result in results) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.batches", description=__doc__)
    known = " ".join(zoo.names(zoo.BATCH))
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of: {known} (default: all)")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 7, 8, 32], metavar="N", help="to check")
    parser.add_argument("--timed", type=int, nargs="*", default=[8, 32], metavar="N", help="of those, to time")
    parser.add_argument("--peers", nargs="+", choices=bench.peers.STANDARD, help="default: those that are installed")
    command.add_timing(parser, BatchPlan.round_s, "engine")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no model after so many")
    parser.add_argument("--resume", action="store_true", help="keep what the folder has of models that were run so")
    return parser


def _plan(options: argparse.Namespace) -> BatchPlan:
    """Return how batches are run.

    Raises:
        OptionError: A batch is none, or is to be timed but not checked.
    """
    if min(options.batches) < 1:
        raise OptionError(f"{min(options.batches)} is no batch", hint="give numbers from 1 on")
    if unchecked := set(options.timed) - set(options.batches):
        raise OptionError(f"batch {min(unchecked)} is timed but not checked", hint="add it to --batches")
    peers = options.peers or [peer for peer in bench.peers.STANDARD if bench.peers.installed(peer)]
    return BatchPlan(
        tuple(options.batches),
        tuple(options.timed),
        options.threads,
        peers=tuple(peers),
        rounds=options.rounds,
        round_s=options.seconds,
    )


def _models(options: argparse.Namespace) -> list[str]:
    return options.models or zoo.available(zoo.BATCH)


def _results(options: argparse.Namespace, plan: BatchPlan) -> list[BatchesResult]:
    """Return what there is time for, each model kept in a file of its own as soon as it is done, and how it was run."""
    ended, folder, results = time.monotonic() + options.minutes * _MINUTE, options.out / "batches", []
    folder.mkdir(parents=True, exist_ok=True)
    how = json.loads(json.dumps(dataclasses.asdict(plan)))
    for name in _models(options):
        path = folder / f"{name}.json"
        kept = path.read_text() if options.resume and path.exists() else "{}"
        if json.loads(kept).get("how") == how:
            results.append(BatchesResult.read(kept))
        elif time.monotonic() < ended:
            results.append(_run(name, plan))
            path.write_text(json.dumps({"how": how, **json.loads(results[-1].as_json())}, indent=1))
            print(f"{name}: {'right' if results[-1].passed else 'WRONG'}", file=sys.stderr, flush=True)
    return results


def _run(name: str, plan: BatchPlan) -> BatchesResult:
    model = zoo.make(name)
    job = Job(model.path, {}, plan.threads, zoo_name=name)
    return run_batches(job, plan, BatchImages.draw(model.path, model.inputs), name)


if __name__ == "__main__":
    command.run(main)
