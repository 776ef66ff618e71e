"""`fusion compile --dump`: the module between passes."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from fusion.cli.exit_codes import USAGE
from tests.cli.commands import run
from tests.module import small_models
from tests.module.small_models import FLOAT


def test_each_pass_has_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(small_models.mlp(), tmp_path / "mlp.onnx")
    for folder in (tmp_path / "first", tmp_path / "second"):  # which takes nothing from the cache
        code, _, _ = run(capsys, "compile", tmp_path / "mlp.onnx", "--dump", folder)
        assert code == 0
        files = sorted(folder.iterdir())
        assert [path.name[:4] for path in files] == [f"{number:03d}_" for number in range(len(files))]
        assert files[0].name == "000_imported.py"
        assert files[-1].name.endswith("_schedule_kernels.py")
        assert "R.matmul" in files[0].read_text()
        assert "R.matmul" not in files[-1].read_text()
        assert "T.parallel" in files[-1].read_text() or "T.vectorized" in files[-1].read_text()


def test_branches_have_files_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def branch(name: str, op: str) -> onnx.GraphProto:
        result = helper.make_tensor_value_info(name, FLOAT, [4])
        return helper.make_graph([helper.make_node(op, ["x"], [name])], name, [], [result])

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("t", "Relu"), else_branch=branch("e", "Tanh"))
    inputs = [("c", TensorProto.BOOL, []), ("x", FLOAT, [4])]
    onnx.save(small_models.model([node], inputs, [("y", FLOAT, [4])], {}), tmp_path / "if.onnx")
    code, _, _ = run(capsys, "compile", tmp_path / "if.onnx", "--dump", tmp_path / "states")
    assert code == 0
    imported = [path.read_text() for path in (tmp_path / "states").glob("*imported.py")]
    assert len(imported) == 3
    assert sum("R.nn.relu" in text for text in imported) == 1


def test_a_folder_that_is_not_free(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(small_models.mlp(), tmp_path / "mlp.onnx")
    for folder, said in ((tmp_path, "is not empty"), (tmp_path / "mlp.onnx" / "states", "cannot write")):
        code, _, error = run(capsys, "compile", tmp_path / "mlp.onnx", "--dump", folder)
        assert code == USAGE
        assert said in error
