"""A package of a backend, for the length of a test."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backends import registry


@contextmanager
def importable(folder: Path, module: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the registry find what the package in `folder` registers; `module`, and what it found, are forgotten then.
    Subgraphs that others opened by code of the same name are closed before."""
    gc.collect()
    monkeypatch.syspath_prepend(str(folder))
    registry.other.cache_clear()
    yield
    registry.other.cache_clear()
    sys.modules.pop(module, None)
