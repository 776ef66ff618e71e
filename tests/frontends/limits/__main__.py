"""Lists where fusion and ONNX Runtime disagree: `python -m tests.frontends.limits [OPERATOR ...]`."""

from __future__ import annotations

import sys

from tests.frontends.limits.compare import disagreements
from tests.frontends.limits.measure import Engine
from tests.frontends.limits.mutate import mutations
from tests.frontends.limits.seeds import model_of, seeds


def main(wanted: list[str]) -> None:
    """Print one line for each disagreement, then the number of cases."""
    onnxruntime, fusion = Engine("onnxruntime"), Engine("fusion")
    asked = 0
    for seed in seeds():
        if wanted and seed.node.op_type not in wanted:
            continue
        if onnxruntime.ask(model_of(seed).SerializeToString(), seed.values).verdict != "runs":
            print(f"{seed.name}: ONNX Runtime does not take the valid one", flush=True)
            continue
        cases = [("unchanged", seed), *mutations(seed)]
        asked += len(cases)
        for line in disagreements(cases, onnxruntime, fusion):
            print(line, flush=True)
    print(f"{asked} cases")


if __name__ == "__main__":
    main(sys.argv[1:])
