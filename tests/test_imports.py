"""Imports form no circle, file by file; import-linter checks the layers of folders."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from fusion.system.collector import paused
from tests.imported import imported, modules

ROOT = Path(__file__).parents[1]


def test_no_file_imports_itself_in_a_circle() -> None:
    known = modules(ROOT)
    with paused():  # trees are thousands of objects, among which is no garbage
        graph = {name: imported(path, known) - {name} for name, path in known.items()}
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
    assert set(order) == set(known)
