"""docs/relay_operators.md against the table of translations."""

from __future__ import annotations

import re
from pathlib import Path

from fusion.frontends.relay.registry import operators

PAGE = Path(__file__).parents[3] / "docs" / "relay_operators.md"
ROW = re.compile(r"^\| `([\w.]+)` \| (done|not needed|missing) \| (.*?) ?\|$", re.MULTILINE)


def test_the_page_says_what_is_done() -> None:
    text = PAGE.read_text()
    rows = ROW.findall(text)
    states = {operator: state for operator, state, _ in rows}
    assert len(rows) == text.count("\n| `"), "a row has another form"
    assert len(states) == len(rows), "an operator is listed twice"
    done = {operator for operator, state in states.items() if state == "done"}
    assert done == set(operators())
    assert len(done) >= 200
    assert all(why for _, state, why in rows if state != "done")


def test_the_page_counts_right() -> None:
    text = PAGE.read_text()
    counted = re.search(r"(\d+) are done, (\d+) are not needed, (\d+) are missing", text.replace("\n", " "))
    assert counted is not None
    states = [state for _, state, _ in ROW.findall(text)]
    assert [int(number) for number in counted.groups()] == [states.count(s) for s in ("done", "not needed", "missing")]
