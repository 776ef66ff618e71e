"""`python -m bench.ablation`: what each technique of fusion is worth on models of the zoo."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench import command, zoo
from bench.ablation import report
from bench.ablation.steps import measure
from bench.machine import measure_machine
from fusion.cpus import allowed_cpus

_MODELS = (
    "resnet50", "mobilenet_v2", "bert_tiny", "minilm", "vit_s", "mobilevit_s", "convnext_t", "ppocr_det"
)  # fmt: skip


def main() -> int:
    """Return 0 if all forms of every model passed the gate, else 1."""
    options = _parser().parse_args()
    machine = measure_machine(options.threads)
    models = []
    for name in options.models or _MODELS:
        models.append(measure(name, options.threads, options.rounds, options.seconds))
        print(f"{name}: {models[-1].factors}", file=sys.stderr, flush=True)
    text = report.text(models, machine)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "ablation.md").write_text(text)
    (options.out / "ablation.json").write_text(report.as_json(models, machine))
    print(text)
    print(f"written to {options.out}: ablation.md, ablation.json")
    verdicts = (engine.verdict for model in models for engine in model.result.engines.values())
    return 0 if all(verdict is not None and verdict.passed for verdict in verdicts) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.ablation", description=__doc__)
    known, default = " ".join(zoo.names()), " ".join(_MODELS)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of: {known} (default: {default})")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.2, help="per round and form")
    parser.add_argument("--threads", type=int, default=allowed_cpus())
    parser.add_argument("--out", type=Path, default=Path("build") / "bench", help="folder of the report")
    return parser


if __name__ == "__main__":
    command.run(main)
