"""`python -m tests.backends.to_onnx [--zoo SET ...]`: ONNX's node tests, and models of the zoo, as Relax and as ONNX
again."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

from bench import zoo
from bench.gate import error_of
from fusion.errors import FusionError
from tests.backends.to_onnx.round_trip import exported, round_trip
from tests.frontends.against_onnxruntime import onnxruntime_runs
from tests.onnx_nodes.cases import load_cases
from tests.onnx_nodes.compare import mismatch


def main() -> None:
    """Print what differs or is refused, and counts."""
    parser = argparse.ArgumentParser(prog="python -m tests.backends.to_onnx", description=__doc__)
    parser.add_argument("--zoo", nargs="*", default=[], choices=list(zoo.registry.SETS), help="sets of models as well")
    for which in parser.parse_args().zoo:
        for name in zoo.available(which):
            print(f"{name}: {_of_model(zoo.make(name))}", flush=True)
    counts: Counter[str] = Counter()
    for name, case in load_cases().items():
        found = _of_case(case)
        counts[found.partition(":")[0]] += 1
        if found not in ("ok", "not imported", "refused by ONNX Runtime as it was"):
            print(f"{name}: {found}", flush=True)
    print(dict(counts))


def _of_model(made: zoo.ZooModel) -> str:
    try:
        return f"error {max(error_of(*pair) for pair in zip(*round_trip(made.path, made.inputs(7)), strict=True)):.1e}"
    except FusionError as error:
        return f"not written: {error.where}"


def _of_case(case: Any) -> str:
    inputs = dict(zip((value.name for value in case.model.graph.input), case.data_sets[0][0], strict=True))
    try:
        written = exported(case.model)
    except FusionError as error:
        return f"not written: {error.where}" if "written" in error.what else "not imported"
    except AttributeError:  # it runs on ONNX Runtime as a whole
        return "not imported"
    taken = {value.name: inputs[value.name] for value in written.graph.input}
    try:
        found = onnxruntime_runs(written, taken)
    except Exception as error:  # ONNX Runtime's exceptions share no base class
        try:
            onnxruntime_runs(case.model, inputs)
        except Exception:
            return "refused by ONNX Runtime as it was"
        return f"refused: {error}"
    different = mismatch(found, case.data_sets[0][1], rtol=max(case.rtol, 1e-3), atol=max(case.atol, 1e-5))
    return f"different: {different}" if different else "ok"


if __name__ == "__main__":
    main()
