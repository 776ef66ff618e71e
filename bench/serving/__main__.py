"""`python -m bench.serving`: models of the zoo under many callers and beside busy processes, against other engines."""

from __future__ import annotations

import argparse
import sys

from bench import command, zoo
from bench.serving import report
from bench.serving.measure import measure
from fusion.system.cpus import allowed_cpus

_MODELS = ("bert_tiny", "mobilenet_v2", "resnet50")
_CALLERS = (1, 2, 4, 8)


def main() -> int:
    """Return 0 if fusion passed the gate and returned the same to all callers, in every model; else 1."""
    options = _parser().parse_args()
    models = []
    for name in options.models or _MODELS:
        models.append(measure(name, options.threads, options.rounds, options.seconds, options.callers))
        print(f"{name}: {'right' if models[-1].right else 'WRONG'}", file=sys.stderr, flush=True)
    about = models, options.threads, allowed_cpus()
    command.write(options.out, "serving", report.text(*about), report.as_json(*about))
    return 0 if all(model.right for model in models) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.serving", description=__doc__)
    known, default = " ".join(zoo.names()), " ".join(_MODELS)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of: {known} (default: {default})")
    parser.add_argument("--callers", nargs="+", type=int, default=list(_CALLERS), metavar="N")
    command.add_timing(parser, 1.0, "engine")
    return parser


if __name__ == "__main__":
    command.run(main)
