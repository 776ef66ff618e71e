"""Modules for the fake driver, compiled once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import fusion
from backends.cuda.codegen import device_code
from backends.cuda.runtime import driver
from tests.backends.cuda.fake.fake_cuda import WHY_NOT, fake_assemble
from tests.backends.cuda.test_models import feed_forward, model


def lookup() -> onnx.ModelProto:
    """Rows of a table by indices, which a kernel checks, and their total: two outputs, one of them also passed on."""
    table = np.arange(84, dtype=np.float32).reshape(7, 12) / 8
    nodes = [
        helper.make_node("Gather", ["t", "x"], ["g"]), helper.make_node("Relu", ["g"], ["z"]),
        helper.make_node("ReduceSum", ["z", "axes"], ["y"], keepdims=0),
    ]  # fmt: skip
    return model(nodes, (4,), (4,), "int64", {"z": (4, 12)}, t=table, axes=np.array([1]))


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return files of modules for sm_80 and sm_90 by name."""
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    folder = tmp_path_factory.mktemp("modules")
    paths = {name: folder / f"{name}.fusion" for name in ("feed_forward", "lookup")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "LIBRARY", "no-such-library.so")
        patch.setattr(device_code, "assemble", fake_assemble)
        for made, path in zip((feed_forward(), lookup()), paths.values(), strict=True):
            fusion.compile(made, target="cuda -arch=sm_80,sm_90", cache=False).save(path)
    return paths
