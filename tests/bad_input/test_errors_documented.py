"""Every error a user can meet has its own code, and a section in docs/errors.md with a wrong and a right example."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fusion import errors
from fusion.errors import FusionError

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
CLASSES = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, FusionError) and kind is not FusionError and "code" in vars(kind)
]


def sections() -> dict[str, str]:
    """Return the text of each section by its title."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_codes_are_unique() -> None:
    assert len({kind.code for kind in CLASSES}) == len(CLASSES)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.code)
def test_an_error_is_documented(kind: type[FusionError]) -> None:
    text = sections()[f"{kind.code} {kind.__name__}"]
    assert "Wrong:" in text
    assert "Right:" in text


def test_every_section_is_of_an_error() -> None:
    assert set(sections()) == {f"{kind.code} {kind.__name__}" for kind in CLASSES}
