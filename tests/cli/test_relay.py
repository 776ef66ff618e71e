"""The `fusion` command on Relay modules, and `fusion convert`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import ml_dtypes
import numpy as np
import onnx
import pytest
import tvm

import fusion
from tests import without_torch
from tests.cli.commands import run, run_json
from tests.frontends.relay import shared_models
from tests.module import small_models
from tests.source_files import run_source

RELAY = shared_models.path("mlp")


@pytest.fixture(scope="module")
def params(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The weights of mlp.relay as an .npz."""
    path = tmp_path_factory.mktemp("params") / "mlp.npz"
    np.savez(path, **shared_models.weights("mlp"))  # type: ignore[arg-type]
    return path


def test_compile_run_and_compare(params: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved, data, outputs = tmp_path / "m.fusion", tmp_path / "data.npy", tmp_path / "out.npz"
    np.save(data, shared_models.values("mlp")["data"])
    code, made = run_json(capsys, "compile", RELAY, "--params", params, "-o", saved)
    assert code == 0
    assert [spec["name"] for spec in made["inputs"]] == ["data"]
    assert run(capsys, "run", RELAY, "--params", params, "--input", f"data={data}", "-o", outputs)[0] == 0
    with np.load(outputs) as archive:
        assert shared_models.close(archive["output_0"], shared_models.expected("mlp")["output_0"])
    code, found = run_json(capsys, "compare", RELAY, saved, "--params", params)
    assert (code, found["same"]) == (0, True)
    assert "kernels" in run(capsys, "explain", RELAY, "--params", params)[1]


def test_without_parameters_all_are_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, made = run_json(capsys, "compile", RELAY, "-o", tmp_path / "m.fusion")
    assert code == 0
    assert [spec["name"] for spec in made["inputs"]] == list(shared_models.values("mlp"))


def test_bench_takes_backends(
    params: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Named(Exception):
        pass

    def compiled(*_: object, backends: list[str], **__: object) -> None:
        raise Named(*backends)

    monkeypatch.setattr(fusion, "compile", compiled)
    _, _, err = run(capsys, "bench", RELAY, "--params", params, "--backends", "openvino,cpu")
    assert "Named: ('openvino', 'cpu')" in err


def test_bench_compares_with_tvm(params: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run_json(capsys, "bench", RELAY, "--params", params, "--rounds", 1)
    assert (code, found["passed"]) == (0, True)
    assert found["fusion_ms"] > 0
    assert found["tvm_ms"] > 0


def test_no_engine_has_a_stream_of_shapes_for_a_relay_module(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stream.json").write_text('[{"x": [1, 8]}]')
    code, _, err = run(capsys, "bench", RELAY, "--shapes", tmp_path / "stream.json")
    assert code == 2
    assert "--shapes is for ONNX models" in err


def test_parameters_of_a_comparison_are_for_the_relay_module(
    params: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(small_models.mlp(), tmp_path / "mlp.onnx")
    code, _, err = run(capsys, "compare", RELAY, tmp_path / "mlp.onnx", "--params", params)
    assert code == 2
    assert "--params" not in err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["run", "bad.relay"], 2, "[F102] `)` cannot stand here\n  where: line 1, column 37 of bad.relay"),
        (["run", "none.relay"], 2, "[F101] there is no file 'none.relay'"),
        (["run", RELAY, "--params", "none.npz"], 2, "[F103] cannot read the parameters"),
        (["run", RELAY, "--params", "other.npz"], 2, "--params names 'x'"),
        (["run", "mlp.onnx", "--params", "other.npz"], 2, "[F502] --params is of no use"),
        (["bench", "mlp.onnx", "--params", "other.npz"], 2, "--params is for Relay modules"),
        (["bench", RELAY, "--peers", "onnxruntime"], 2, "cannot run a Relay module"),
        (["compare", RELAY], 2, "ONNX Runtime cannot run the Relay module"),
        (["run", "strange.relay"], 3, "no.such_operator"),
        (["convert", "strange.relay", "-o", "m.py"], 3, "no.such_operator"),
        (["convert", RELAY, "-o", "model.txt"], 2, "no name of a Python module"),
        (["convert", RELAY, "-o", "my-model.py"], 2, "no name of a Python module"),
        (["convert", "m.fusion"], 2, "compiled module"),
        (["convert", RELAY, "-o", "none/m.py"], 2, "cannot write"),
        (["convert", "text.py", "-o", "text.py"], 2, "which would be lost"),
    ],
)  # fmt: skip
def test_failures_are_one_message(
    arguments: list[object], code: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("bad.relay").write_text("def @main(%x: float32) { nn.relu(%x)) }")
    Path("strange.relay").write_text("def @main(%x: float32) { no.such_operator(%x) }")
    Path("text.py").write_text(RELAY.read_text())
    np.savez("other.npz", x=np.zeros(3))
    onnx.save(small_models.mlp(), "mlp.onnx")
    found, _, err = run(capsys, *arguments)
    assert found == code, err
    assert words in err


def check_converted(source: ModuleType, name: str) -> None:
    """Compile what a converted file holds, and compare with what TVM 0.17 computed."""
    module = fusion.compile(source.load())
    found = module.run({"data": shared_models.values(name)["data"]})
    assert shared_models.close(found["output_0"], shared_models.expected(name)["output_0"])


@pytest.mark.parametrize("name", ["mlp", "let_tuple", "squeezenet_64"])
def test_convert_writes_source_with_the_same_outputs(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "weights.npz", **shared_models.weights(name))  # type: ignore[arg-type]
    output = tmp_path / "converted.py"
    code, made = run_json(
        capsys, "convert", shared_models.path(name), "--params", tmp_path / "weights.npz", "-o", output
    )
    assert code == 0
    assert made["weights"] == str(tmp_path / "converted.safetensors")
    assert [spec["name"] for spec in made["inputs"]] == ["data"]
    source = run_source(output)
    check_converted(source, name)
    names = [str(parameter.name) for parameter in source.Module["main"].params]
    assert set(shared_models.values(name)) <= set(names)


def test_a_converted_file_works_in_another_process_and_folder(
    params: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "convert", RELAY, "--params", params, "-o", tmp_path / "mine.py")[0] == 0
    code = "import mine; print(*mine.load()['main'].params)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True,
        env=without_torch.environment(),
    )  # fmt: skip
    assert done.stdout == "data\n"


def test_convert_without_parameters_keeps_them_as_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, made = run_json(capsys, "convert", RELAY, "-o", tmp_path / "m.py")
    assert code == 0
    assert made["weights"] is None
    values = shared_models.values("mlp")
    found = fusion.compile(run_source(tmp_path / "m.py").Module).run(values)
    assert shared_models.close(found["output_0"], shared_models.expected("mlp")["output_0"])


def test_convert_takes_onnx(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(small_models.mlp("rows"), tmp_path / "mlp.onnx")
    assert run(capsys, "convert", tmp_path / "mlp.onnx", "--shape", "x=5,8")[0] == 0
    x = np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32)
    (found,) = fusion.compile(run_source(tmp_path / "mlp.py").load())(x)
    np.testing.assert_allclose(found, small_models.mlp_numpy(x), rtol=1e-5, atol=1e-6)


def test_convert_keeps_ifs_and_odd_values_and_names(tmp_path: Path) -> None:
    kind = "Tensor[(3), float32]"
    text = f"def @main(%c: bool, %class: {kind}, %a.b: {kind}, %a_b: {kind})" + """ {
      %0 = add(add(%class, %a.b), inff);
      %1 = if (%c) { %2 = minimum(%0, 3f); multiply(%2, %a_b) } else { negative(%class) };
      (%1, clip(%class, a_min=-1f, a_max=1f))
    }"""
    weights = {"a_b": np.array([1, 2, np.inf], np.float32), "a.b": np.zeros(3, np.float32)}
    path = fusion.convert(text, tmp_path / "odd.py", params=weights).path
    converted, module = fusion.compile(run_source(path).load()), fusion.compile(text, params=weights)
    x = np.array([-2, 0.5, 7], np.float32)
    for condition in (True, False):
        wanted = module(np.array(condition), x)
        found = converted(np.array(condition), x)
        for actual, value in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(actual, value)
    assert "_class" in path.read_text()


def test_convert_keeps_bfloat16_and_bool(tmp_path: Path) -> None:
    text = """def @main(%x: Tensor[(3), bfloat16], %w: Tensor[(3), bfloat16], %m: Tensor[(3), bool]) {
      where(%m, add(%x, %w), %x)
    }"""
    weights = {"w": np.arange(3).astype(ml_dtypes.bfloat16), "m": np.array([True, False, True])}
    path = fusion.convert(text, tmp_path / "half.py", params=weights).path
    loaded = run_source(path).load()
    assert isinstance(loaded, tvm.IRModule)
    assert [str(parameter.name) for parameter in loaded["main"].params] == ["x"]
