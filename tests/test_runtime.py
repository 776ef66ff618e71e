"""TVM is imported once, without its backends for GPUs, and its tables of functions are left as they were."""

from __future__ import annotations

import os
import subprocess
import sys

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


@pytest.mark.parametrize(("asked", "loaded"), [(None, ["False", "True"]), ("1", ["True", "True"])])
def test_backends_for_gpus_are_imported_where_they_are_asked_for(asked: str | None, loaded: list[str]) -> None:
    """In a process of its own, as this one may have imported TVM before."""
    code = (
        "import sys, fusion.runtime; tvm = fusion.runtime.import_compiler();"
        "print('tvm.backend.cuda.ptx' in sys.modules);"
        "tvm.backend.load('cuda'); print('tvm.backend.cuda.ptx' in sys.modules)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TVM_DEVICE_BACKEND_AUTOLOAD"}
    if asked is not None:
        environment["TVM_DEVICE_BACKEND_AUTOLOAD"] = asked
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == loaded
