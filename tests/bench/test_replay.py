"""Records of what the compiler makes of a model: equal for equal compilers, and different where anything is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from bench.replay.compare import differences
from bench.replay.record import record, write
from bench.zoo import Recipe, ZooModel
from fusion import context
from tests.module import small_models


def texts_of(proto: onnx.ModelProto, folder: Path, threads: int = 1) -> dict[str, str]:
    path = folder / "mlp.onnx"
    onnx.save(proto, path)
    return record(ZooModel(Recipe("mlp", lambda path: None, {}), path, ()), context.resolve(threads=threads))


def test_a_record_holds_all_that_is_decided(tmp_path: Path) -> None:
    texts = texts_of(small_models.mlp(), tmp_path)
    kernels = [name for name in texts if name.startswith("kernels/")]
    assert all("T.prim_func" in texts[name] for name in kernels)
    assert kernels
    assert "R.call_tir" in texts["main.py"]
    assert texts["groups.txt"].startswith("x = input: float32[3,8] -> input 0\nh = matmul: float32[3,32] -> group_")
    assert len(texts["weights.txt"].splitlines()) == 2
    assert "outputs 0: " in texts["plan.txt"]
    assert "calls 0: " in texts["plan.txt"]
    assert texts == texts_of(small_models.mlp(), tmp_path)


def other_weight() -> onnx.ModelProto:
    proto = small_models.mlp()
    weight = proto.graph.initializer[0]
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) + np.float32(1), weight.name))
    return proto


def other_activation() -> onnx.ModelProto:
    proto = small_models.mlp()
    proto.graph.node[1].op_type = "Sigmoid"
    return proto


@pytest.mark.parametrize(
    ("after", "changed"), [(other_weight(), {"weights.txt"}), (other_activation(), {"main.py", "groups.txt"})]
)
def test_differences_are_told_by_text(after: onnx.ModelProto, changed: set[str], tmp_path: Path) -> None:
    for name, proto in (("before", small_models.mlp()), ("after", after)):
        write(texts_of(proto, tmp_path), tmp_path / name / "mlp")
        write(texts_of(small_models.two_layers(), tmp_path), tmp_path / name / "same")
    found = list(differences(tmp_path / "before", tmp_path / "after"))
    assert {difference.model for difference in found} == {"mlp"}
    assert changed <= {difference.name for difference in found}
    assert all(len(difference.lines(3)) <= 4 for difference in found)
    if changed == {"weights.txt"}:
        assert [str(difference) for difference in found] == ["mlp: weights.txt differs"]
