"""`python -m bench.rules`: how often each rule of rewriting applies, and in which models."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping
from itertools import takewhile

from bench import command, markdown, zoo
from bench.zoo import ZooModel
from fusion import context
from fusion.context import Context
from fusion.errors import FusionError
from fusion.frontends import import_model
from fusion.pipeline import operator_passes
from fusion.rewrites.rewrite import Rewrite
from fusion.rewrites.table import RULES


def main() -> int:
    """Return 0, 2 for an unknown model."""
    parser = argparse.ArgumentParser(prog="python -m bench.rules", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="of any set of the zoo (default: the first)")
    options = parser.parse_args()
    ctx = context.resolve(cache=False)
    try:
        found = {name: applied(zoo.make(name), ctx) for name in options.models or zoo.available(zoo.ZOO)}
    except FusionError as error:
        print(error, file=sys.stderr)
        return 2
    print(text(found))
    return 0


def applied(model: ZooModel, ctx: Context) -> Counter[str]:
    """Return how often each rule applies in a model, its branches included."""
    imported = import_model(str(model.path), dict(model.shapes), strict=False)
    before = list(takewhile(_is_not_rewrite, operator_passes(ctx)))
    found: Counter[str] = Counter()
    with ctx.target:
        for mod in filter(None, (imported.mod, *imported.branches.values())):  # ONNX Runtime may run all of it
            for each in before:
                mod = each(mod)
            found += Rewrite().run(mod).fact.applied
    return found


def text(found: Mapping[str, Mapping[str, int]]) -> str:
    """Return a table with a row for each rule, in the order in which they are tried, given the counts of each model."""
    rows = []
    for rule in RULES:
        counts = {model: applied[rule.name] for model, applied in found.items() if applied.get(rule.name)}
        where = ", ".join(f"{model} {count}" for model, count in counts.items())
        rows.append((rule.name, str(sum(counts.values())), str(len(counts)), where))
    return markdown.table(("rule", "times", "models", "which"), rows)


def _is_not_rewrite(each: object) -> bool:
    return not isinstance(each, Rewrite)


if __name__ == "__main__":
    command.run(main)
