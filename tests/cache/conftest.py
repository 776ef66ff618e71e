"""A cache of its own for each test of this folder, and a count of what is compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fusion import api
from fusion.cache import Store, find_place


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an empty cache, which is on."""
    monkeypatch.setenv("FUSION_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FUSION_CACHE_SIZE", "1G")
    return tmp_path / "cache" / "compiled"


@pytest.fixture
def store(folder: Path) -> Store:
    """What reads and writes there."""
    place = find_place()
    assert place is not None
    assert place.folder == folder
    return Store(place)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The shapes of each form that was compiled, and not taken from the cache."""
    found: list[Any] = []
    original = api.compile_form

    def count(model: Any, shapes: Any, ctx: Any) -> Any:
        found.append(dict(shapes))
        return original(model, shapes, ctx)

    monkeypatch.setattr(api, "compile_form", count)
    return found
