"""Prints the counts of the node tests: `python -m tests.onnx_nodes [--write] [--engine NAME] [--only TEXT]`."""

from __future__ import annotations

import argparse
from collections import Counter

from tests.onnx_nodes import table
from tests.onnx_nodes.suite import Outcome, run_all


def main() -> None:
    """Run the suite; with `--write`, record what it finds."""
    parser = argparse.ArgumentParser(prog="python -m tests.onnx_nodes", description=__doc__)
    parser.add_argument("--engine", default="fusion", choices=["fusion", "frontend", "plain_tvm"])
    parser.add_argument("--only", default="", help="run only tests whose name contains this text; nothing is written")
    parser.add_argument("--write", action="store_true", help="record the outcomes as the new expectations")
    options = parser.parse_args()
    outcomes = run_all(options.engine, only=options.only)
    if options.write and not options.only and options.engine != "frontend":
        (table.write_plain_tvm if options.engine == "plain_tvm" else table.write_outcomes)(outcomes)
    _print_summary(outcomes)
    if options.engine != "plain_tvm":
        _print_changes(outcomes)


def _print_summary(outcomes: dict[str, Outcome]) -> None:
    for outcome, count in Counter(found.outcome for found in outcomes.values()).most_common():
        print(f"{count:5} {outcome}")
    reasons = Counter(found.reason.split(":")[0] for found in outcomes.values() if found.outcome == "unsupported")
    for reason, count in reasons.most_common():
        print(f"      {count:5} {reason}")


def _print_changes(outcomes: dict[str, Outcome]) -> None:
    expected = table.read_outcomes()
    for name, found in outcomes.items():
        before = expected[name].outcome if name in expected else "new"
        if before != found.outcome:
            print(f"{name}: {before} -> {found.outcome} {found.reason}")
    for name in sorted(table.read_plain_tvm() & set(outcomes)):
        if outcomes[name].outcome != "native":
            print(f"{name}: plain TVM passes it; here {outcomes[name].outcome} {outcomes[name].reason}")


if __name__ == "__main__":
    main()
