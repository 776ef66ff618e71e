"""`python -m bench.ablation`: what each technique of fusion is worth on models of the zoo."""

from __future__ import annotations

import argparse
import sys

from bench import command, zoo
from bench.ablation import report
from bench.ablation.steps import measure
from bench.machine import measure_machine

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
    command.write(options.out, "ablation", report.text(models, machine), report.as_json(models, machine))
    verdicts = (engine.verdict for model in models for engine in model.result.engines.values())
    return 0 if all(verdict is not None and verdict.passed for verdict in verdicts) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.ablation", description=__doc__)
    known, default = " ".join(zoo.names()), " ".join(_MODELS)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of: {known} (default: {default})")
    command.add_timing(parser, 0.2, "form")
    return parser


if __name__ == "__main__":
    command.run(main)
