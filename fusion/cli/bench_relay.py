"""`fusion bench` on a Relay module: against TVM's default pipeline on the same Relax module, as no other engine reads
it.

Both run in this process, rounds interleaved; a ratio is the median over the rounds.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import fusion
from fusion.cli.difference import difference
from fusion.cli.exit_codes import OK, RESULTS_DIFFER
from fusion.cli.options import parse_bounds, parse_sizes
from fusion.cli.output import show
from fusion.cli.progress import progress
from fusion.errors import OptionError

_TOLERANCE = 1e-3
"""What the float64 gate of bench allows where it has only one other engine to go by."""
_ROUND_S = 0.25
_PEER = "tvm"

Runner = Callable[[], list[np.ndarray]]


def bench_relay(options: argparse.Namespace) -> int:
    """Print the comparison; 1 where the results differ."""
    if options.peers not in (None, _PEER):
        raise OptionError(f"{options.peers} cannot run a Relay module", hint=f"--peers takes {_PEER} there")
    from fusion.cli.feed import complete_inputs

    shapes = parse_sizes(options.shape, "bench")
    with progress(f"compiling {options.model}"):
        started = time.perf_counter()
        module = fusion.compile(
            options.model, shapes=shapes or None, params=options.params, threads=options.threads, wait=True,
            bounds=parse_bounds(options.bounds), backends=options.backends,
        )  # fmt: skip
        inputs = complete_inputs(module, {}, shapes, 0)
        arrays = [inputs[spec.name] for spec in module.inputs]
        module(*arrays)
        compile_s = time.perf_counter() - started
        plain = _plain_tvm(options, {name: array.shape for name, array in inputs.items()}, arrays)
    with progress(f"measuring {options.model}"):
        ours, theirs, ratio = _time(lambda: list(module(*arrays)), plain, options.rounds)
    found = [difference(a, b).relative for a, b in zip(module(*arrays), plain(), strict=True)]
    error = max((math.inf if relative is None else relative for relative in found), default=0.0)
    data = {
        "fusion_ms": ours * 1e3, "tvm_ms": theirs * 1e3, "ratio": ratio, "compile_s": compile_s, "error": error,
        "passed": error <= _TOLERANCE,
    }  # fmt: skip
    text = (
        f"fusion {ours * 1e3:.3f} ms, compiled in {compile_s:.1f} s\n"
        f"TVM's default pipeline, untuned {theirs * 1e3:.3f} ms: fusion is {ratio:.2f} times as fast\n"
        f"largest relative difference {error:.1e}, {'right' if data['passed'] else 'NOT RIGHT'} (up to {_TOLERANCE:g})"
    )
    show(text, data, options.json)
    return OK if data["passed"] else RESULTS_DIFFER


def _plain_tvm(options: argparse.Namespace, shapes: dict[str, tuple[int, ...]], arrays: list[np.ndarray]) -> Runner:
    import tvm
    from tvm import relax

    from fusion.frontends import import_model, open_model
    from fusion.passes.inline_branches import InlineBranches

    imported = import_model(open_model(options.model, options.params), shapes, strict=True)
    target = tvm.target.Target.from_device("cpu")
    mod = relax.get_pipeline("zero")(InlineBranches(imported.branches)(imported.mod))
    machine = relax.VirtualMachine(relax.build(mod, target), tvm.cpu())
    tensors = [tvm.runtime.tensor(array) for array in arrays]

    def run() -> list[np.ndarray]:
        result: Any = machine["main"](*tensors)
        fields = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        return [np.asarray(field.numpy()) for field in fields]

    return run


def _time(ours: Runner, theirs: Runner, rounds: int) -> tuple[float, float, float]:
    """Return the seconds of both, medians of all rounds, and the median ratio."""
    pairs = [(_median_s(ours), _median_s(theirs)) for _ in range(rounds)]
    left, right = zip(*pairs, strict=True)
    return statistics.median(left), statistics.median(right), statistics.median(b / a for a, b in pairs)


def _median_s(run: Runner) -> float:
    run()
    times: list[float] = []
    end = time.perf_counter() + _ROUND_S
    while not times or time.perf_counter() < end:
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return statistics.median(times)
