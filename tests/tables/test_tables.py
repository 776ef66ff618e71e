"""Pages that are written from the code say what it says."""

from __future__ import annotations

import pytest

from backends.cpu.kernels.priority import TEMPLATES
from fusion.rewrites import RULES
from tests.tables import DOCS, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_code_writes(name: str) -> None:
    written = (DOCS / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), "`python -m tests.tables` writes it anew"


@pytest.mark.parametrize(
    ("name", "titles"),
    [("rewrites.md", [rule.name for rule in RULES]), ("spaces.md", [template.name for template in TEMPLATES])],
)
def test_every_rule_and_every_family_is_there(name: str, titles: list[str]) -> None:
    lines = (DOCS / name).read_text(encoding="utf-8").splitlines()
    assert [line[3:] for line in lines if line.startswith("## ")] == titles
