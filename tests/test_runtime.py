"""TVM is imported once, and its tables of functions are left as they were."""

from __future__ import annotations

import pytest

from fusion import runtime

REGISTRY = runtime.tvm_ffi.registry


def test_a_second_import_changes_nothing_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads at once would each put back what the other had put there."""
    tvm, ask = runtime.import_compiler(), REGISTRY.list_global_func_names
    seen = []

    def importing(name: str) -> object:
        seen.append((name, REGISTRY.list_global_func_names is ask))
        return tvm

    monkeypatch.setattr(runtime, "_import_without_torch", importing)
    assert runtime.import_compiler() is tvm
    assert seen == [("tvm", True)]
