"""The `fusion` command: what each verb prints and the code it ends with."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import fusion
from fusion.cli import main
from fusion.cli.main import build_parser
from fusion.cli.options import user_path
from fusion.cli.wording import command_text
from fusion.errors import FusionError
from tests.cli.commands import run, run_json
from tests.module import small_models
from tests.module.small_models import FLOAT, mlp_numpy

VERBS = ("compile", "run", "bench", "compare", "explain", "plan", "convert", "cache", "database", "doctor")
COMPILE_OPTIONS = (["--threads", "1"], ["--strict"], ["--effort", "fast"], ["--target", "llvm"])
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with mlp.onnx and mlp.fusion, and models with a free batch, one that a Reshape fixes, other weights, an
    unknown operator."""
    path = tmp_path_factory.mktemp("models")
    reshape = helper.make_node("Reshape", ["x", "shape"], ["y"])
    weights = {"shape": np.array([4, 6])}
    fixed = small_models.model([reshape], [("x", FLOAT, ["rows", 8])], [("y", FLOAT, [4, 6])], weights)
    onnx.save(fixed, path / "fixed.onnx")
    onnx.save(small_models.mlp(), path / "mlp.onnx")
    onnx.save(small_models.mlp("rows"), path / "free.onnx")
    other = small_models.mlp()
    other.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(small_models.weights(1)[0], "first"))
    onnx.save(other, path / "other.onnx")
    foreign = helper.make_node("Mystery", ["x"], ["y"], domain="nobody.knows")
    unknown = small_models.model([foreign], [("x", FLOAT, [3])], [("y", FLOAT, [3])])
    unknown.opset_import.append(helper.make_opsetid("nobody.knows", 1))
    onnx.save(unknown, path / "unknown.onnx")
    assert main(["compile", str(path / "mlp.onnx")]) == 0
    return path


@pytest.mark.parametrize("verb", [(), *((verb,) for verb in VERBS)])
def test_help_fits_a_screen(verb: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fusion", *verb, "--help"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    lines = done.stdout.splitlines()
    assert len(lines) <= 24
    assert max(len(line) for line in lines) <= 100


@pytest.mark.parametrize("arguments", [[], ["fly"], ["run"], ["compile", "m.onnx", "--threads", "many"]])
def test_wrong_usage_ends_with_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_compile_writes_a_module(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "m.fusion"
    code, data = run_json(capsys, "compile", folder / "free.onnx", "-o", output, "--shape", "x=5,8")
    assert code == 0
    assert data["bytes"] == output.stat().st_size
    assert data["inputs"] == [{"name": "x", "shape": [5, 8], "dtype": "float32"}]


def test_compile_leaves_dimensions_open(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "m.fusion"
    code, data = run_json(capsys, "compile", folder / "free.onnx", "-o", output)
    assert (code, data["cached"]) == (0, False)
    assert data["inputs"] == [{"name": "x", "shape": [None, 8], "dtype": "float32"}]
    for rows in (3, 17):
        code, found = run_json(capsys, "run", output, "--shape", f"x={rows},8")
        assert (code, found["outputs"]["y"]["shape"]) == (0, [rows, 4])
    code, out, _ = run(capsys, "explain", output, "--html", tmp_path / "page.html")
    assert (code, "all sizes: rows 0 to 65536" in out) == (0, True)
    page = (tmp_path / "page.html").read_text()
    assert "x float32 rows x 8 (drawn at rows " in page
    assert "matmul" in page


def test_shapes_may_name_what_stays_open(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "m.fusion"
    assert run(capsys, "compile", folder / "free.onnx", "-o", output, "--shape", "x=n,8")[0] == 0
    assert [spec.declared for spec in fusion.load(output).inputs] == [["n", 8]]
    _, out, _ = run(capsys, "explain", folder / "free.onnx", "--shape", "x=n,8")
    assert "all sizes: n 0 to 65536" in out
    np.save(tmp_path / "x.npy", np.ones((6, 8), np.float32))
    given = ["--shape", "x=n,8", "--input", f"x={tmp_path / 'x.npy'}"]
    code, found = run_json(capsys, "run", folder / "free.onnx", *given)
    assert (code, found["outputs"]["y"]["shape"]) == (0, [6, 4])


def test_bounds_say_which_sizes_open_dimensions_have(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, given = tmp_path / "m.fusion", ["--bounds", "n=2-12/4", "--shape"]
    assert run(capsys, "compile", folder / "free.onnx", "-o", output, *given, "x=n,8")[0] == 0
    _, out, _ = run(capsys, "explain", output)
    assert "all sizes: n 2 to 10 in steps of 4" in out
    _, out, _ = run(capsys, "explain", folder / "free.onnx", *given, "x=n,8")
    assert "all sizes: n 2 to 10 in steps of 4" in out
    assert run(capsys, "run", output, "--shape", "x=6,8")[0] == 0
    code, _, error = run(capsys, "run", output, "--shape", "x=7,8")
    assert (code, "dimension 'n' is 7 in axis 0 of input 'x', and takes 2 to 10" in error) == (2, True)
    assert "compile the model with other --bounds" in error
    assert run(capsys, "compare", folder / "free.onnx", "--shape", "x=6,8", "--bounds", "rows=1-8")[0] == 0


def test_a_home_is_known_in_every_path(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    np.save(tmp_path / "x.npy", np.ones((6, 8), np.float32))
    given = ["--input=x=~/x.npy", "--output=~/out.npz", "--db=~/records"]
    assert run(capsys, "run", folder / "free.onnx", *given)[0] == 0
    assert (tmp_path / "out.npz").exists()
    assert run_json(capsys, "database", "--db=~/records")[1]["path"] == str(tmp_path / "records")


def test_every_argument_that_is_a_path_is_read_as_one() -> None:
    (verbs,) = (action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    found = {
        (verb, action.dest): action.type is user_path
        for verb, parser in verbs.choices.items()
        for action in parser._actions
        if re.match("FILE|DIR|MODEL|OTHER", str(action.metavar))
    }
    assert len(found) > 20
    assert all(found.values()), found


def test_run_reads_inputs_and_writes_outputs(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(3).standard_normal((3, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    for model in ("mlp.onnx", "mlp.fusion"):
        output = tmp_path / "out.npz"
        code, out, _ = run(capsys, "run", folder / model, "--input", f"x={tmp_path / 'x.npy'}", "-o", output)
        assert code == 0
        assert "y: float32[3, 4]" in out
        with np.load(output) as outputs:
            np.testing.assert_allclose(outputs["y"], mlp_numpy(x), rtol=1e-5, atol=1e-5)


def test_run_makes_random_inputs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, first = run_json(capsys, "run", folder / "free.onnx", "--shape", "x=2,8", "--seed", 1)
    assert code == 0
    assert first["outputs"]["y"]["shape"] == [2, 4]
    _, again = run_json(capsys, "run", folder / "free.onnx", "--shape", "x=2,8", "--seed", 1)
    assert again["outputs"] == first["outputs"]


def test_compare_with_onnx_runtime_and_a_saved_module(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    for arguments in (
        ["mlp.onnx", "--with", "onnxruntime"],
        ["mlp.onnx"],
        ["mlp.fusion", "mlp.onnx"],
        ["mlp.fusion", "mlp.onnx", "--with", "onnxruntime"],
    ):
        paths = [folder / argument if "." in argument else argument for argument in arguments]
        code, data = run_json(capsys, "compare", *paths)
        assert code == 0
        assert data["same"]
        assert data["outputs"]["y"]["relative"] < 1e-5


def test_compare_ends_with_one_where_results_differ(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "compare", folder / "mlp.onnx", folder / "other.onnx")
    assert code == 1
    assert "DIFFER" in out


def test_compare_says_which_shapes_differ(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wide = small_models.model(
        [helper.make_node("Concat", ["x", "x"], ["y"], axis=1)], [("x", FLOAT, [3, 8])], [("y", FLOAT, [3, 16])]
    )
    onnx.save(wide, tmp_path / "wide.onnx")
    code, out, _ = run(capsys, "compare", folder / "mlp.onnx", tmp_path / "wide.onnx")
    assert code == 1
    assert "y: the shapes differ: [3, 4] and [3, 16]" in out
    code, data = run_json(capsys, "compare", folder / "mlp.onnx", tmp_path / "wide.onnx")
    assert code == 1
    assert data["outputs"]["y"]["absolute"] is None


def test_compare_says_that_one_has_a_nan(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.full((3, 8), -1, np.float32))
    root = small_models.model(
        [helper.make_node("Sqrt", ["x"], ["s"]), helper.make_node("Split", ["s"], ["y", "z"], axis=1)],
        [("x", FLOAT, [3, 8])],
        [("y", FLOAT, [3, 4])],
    )
    onnx.save(root, tmp_path / "root.onnx")
    given = ["--input", f"x={tmp_path / 'x.npy'}"]
    code, out, _ = run(capsys, "compare", folder / "mlp.onnx", tmp_path / "root.onnx", *given)
    assert code == 1
    assert "y: one has a NaN" in out


def test_options_of_a_comparison_are_for_the_model_that_is_compiled(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for pair in (["mlp.fusion", "mlp.onnx"], ["mlp.onnx", "mlp.fusion"]):
        code, data = run_json(capsys, "compare", *(folder / name for name in pair), "--threads", 1)
        assert code == 0
        assert data["same"]


@pytest.mark.parametrize("other_name", [None, "link.onnx", "hard.onnx"])
def test_a_command_never_overwrites_what_it_reads(
    folder: Path, tmp_path: Path, other_name: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes((folder / "mlp.onnx").read_bytes())
    before = model.read_bytes()
    (tmp_path / "link.onnx").symlink_to(model)
    (tmp_path / "hard.onnx").hardlink_to(model)
    output = tmp_path / (other_name or "m.onnx")
    for verb in ("compile", "run"):
        code, _, err = run(capsys, verb, model, "-o", output)
        assert code == 2
        assert "would be lost" in err
        assert model.read_bytes() == before


def test_run_does_not_overwrite_its_inputs(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    array = tmp_path / "x.npy"
    np.save(array, np.ones((3, 8), np.float32))
    code, _, err = run(capsys, "run", folder / "mlp.fusion", "--input", f"x={array}", "-o", array)
    assert code == 2
    assert "would be lost" in err
    np.testing.assert_array_equal(np.load(array), np.ones((3, 8), np.float32))


def test_run_chooses_shapes_of_a_saved_module_that_leaves_them_open(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = fusion.compile(str(folder / "free.onnx"), wait=True)
    module(np.zeros((2, 8), np.float32))
    module.save(tmp_path / "free.fusion")
    code, data = run_json(capsys, "run", tmp_path / "free.fusion", "--shape", "x=2,8")
    assert code == 0
    assert data["outputs"]["y"]["shape"] == [2, 4]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"fusion {fusion.__version__}\n"


@pytest.mark.parametrize(
    ("python", "command"),
    [
        ("shapes={'x': (1, 3)} contradicts", "--shape x=1,3 contradicts"),
        ("shapes={'x': (3,)} contradicts", "--shape x=3 contradicts"),
        ("shapes={'x': ()} contradicts", "--shape x= contradicts"),
        ("shapes['x'] = (1, 3)", "--shape x=1,3"),
        ("shapes['x']", "--shape x"),
        ("shapes= names an unknown input", "--shape names an unknown input"),
        ("compile the model with other bounds=", "compile the model with other --bounds"),
        ("no such dimension: bounds['n']", "no such dimension: --bounds n"),
        ("compile with strict=False, to run", "compile without --strict, to run"),
        ("name 'cpu' in backends= too", "name 'cpu' in --backends too"),
        ("threads=-2 is not", "--threads -2 is not"),
        ('use effort="fast"', "use --effort fast"),
        ("effort='max' is not", "--effort max is not"),
        ('target="llvm -mcpu=x86-64-v3"', '--target "llvm -mcpu=x86-64-v3"'),
        ("write it as a list, which may name several: target=['cuda:0']", "the command takes --target cuda"),
    ],
)
def test_errors_in_the_words_of_the_command(python: str, command: str) -> None:
    assert command_text(FusionError("it failed", hint=python)) == f"[F000] it failed\n  hint: {command}"


def test_explain_lists_kernels_and_times(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "explain", folder / "mlp.fusion")
    assert code == 0
    assert "1 kernel in 1 call" in out
    code, data = run_json(capsys, "explain", folder / "mlp.fusion", "--profile")
    assert code == 0
    assert {row["kernel"] for row in data["profile"]["kernels"]} == set(data["forms"][0]["calls"])


def test_explain_writes_a_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "explain", folder / "mlp.fusion", "--html", folder / "page.html")
    assert (code, "1 kernel in 1 call" in out) == (0, True)
    assert (folder / "page.html").read_text().startswith("<!doctype html>")
    code, _, error = run(capsys, "explain", folder / "mlp.fusion", "--html", folder / "mlp.fusion")
    assert (code, "would be lost" in error) == (2, True)


def test_doctor_finds_this_machine_fit(capsys: pytest.CaptureFixture[str]) -> None:
    code, data = run_json(capsys, "doctor")
    assert code == 0
    assert data["self-test"]["good"]
    assert not any(finding["hint"] for finding in data.values() if finding["good"] is not False)
    assert {"python", "apache-tvm", "apache-tvm-ffi", "cpu", "threads", "linker", "backend onnxruntime"} <= set(data)


@pytest.mark.parametrize(
    ("arguments", "expected", "words"),
    [
        (["compile", "none.onnx"], 2, "F101"),
        (["run", "none.fusion"], 2, "F401"),
        (["run", "free.onnx"], 2, "--shape x="),
        (["compile", "fixed.onnx"], 2, "for the names in --shape x=rows,8"),
        (["compile", "fixed.onnx"], 2, "no form for all sizes: the shapes of Reshape contradict each other"),
        (["bench", "free.onnx"], 2, "declares (rows, 8)"),
        (["bench", "free.onnx"], 2, "for the names in --shape x=rows,8"),
        (["compile", "."], 2, "'.' is a directory"),
        (["compile", "/"], 2, "'/' is a directory"),
        (["run", ".."], 2, "'..' is a directory"),
        (["bench", "none.onnx"], 2, "there is no file 'none.onnx'"),
        (["compare", "mlp.onnx", "none.onnx", "--with", "onnxruntime"], 2, "there is no file 'none.onnx'"),
        (["compare", "mlp.onnx", "--tolerance", "-1"], 2, "--tolerance -1"),
        (["compare", "mlp.onnx", "--tolerance", "nan"], 2, "--tolerance nan"),
        (["bench", "mlp.onnx", "--threads", "0"], 2, "--threads 0 is not"),
        (["bench", "mlp.onnx", "--threads", "10000"], 2, "1 to 1024"),
        (["bench", "none.onnx", "--peers", "foo"], 2, "no peer 'foo'"),
        (["bench", "none.onnx", "--peers", ""], 2, "no peer ''"),
        (["bench", "mlp.onnx", "--backends", "cpu,foo"], 2, "no backend has the name 'foo'"),
        (["compile", "mlp.onnx", "--backends", "cpu,foo"], 2, "--backends cpu,foo: no backend has the name 'foo'"),
        (["compile", "mlp.onnx", "--backends", "cpu,,onnxruntime"], 2, "--backends cpu,,onnxruntime has an empty name"),
        (["bench", "mlp.onnx", "--backends", ""], 2, "--backends '' has an empty name in it"),
        (["run", "mlp.onnx", "--shape", "x:3,8"], 2, "write --shape NAME=EXTENTS"),
        (["run", "mlp.onnx", "--shape", "x=3,-8"], 2, "'3,-8' is no list of whole numbers"),
        (["run", "mlp.onnx", "--shape", "x=a b,c"], 2, "'a b,c' is no list of whole numbers, 0 or more, and names"),
        (["run", "mlp.onnx", "--shape", "x=3x,8"], 2, "'3x,8' is no list of whole numbers"),
        (["compile", "mlp.onnx", "--shape", "x=a,b"], 2, "--shape x=a,b contradicts the model"),
        (["compile", "free.onnx", "--shape", "z=a,8"], 2, "no input 'z'"),
        (["compile", "free.onnx", "--bounds", "m=1-8"], 2, "no open dimension has the name 'm'"),
        (["compile", "free.onnx", "--shape", "x=9,8", "--bounds", "rows=1-8"], 2, "'rows' is 9 in axis 0 of input 'x'"),
        (["compare", "free.onnx", "--shape", "x=9,8", "--bounds", "rows=1-8"], 2, "and takes 1 to 8"),
        (["bench", "free.onnx", "--shape", "x=9,8", "--bounds", "rows=1-8"], 2, "give another size, or other --bounds"),
        (["bench", "free.onnx", "--shape", "x=9,8", "--bounds", "m=1-8"], 2, "no open dimension has the name 'm'"),
        (["plan", "free.onnx", "--devices=llvm:0-0", "--shape=x=9,8", "--bounds=rows=2-8/2"], 2, "in steps of 2"),
        (["tune", "--machine", "--bounds", "rows=1-8"], 2, "bounds has no use with --machine"),
        (["compile", "free.onnx", "--bounds", "8"], 2, "write --bounds NAME=SMALLEST-LARGEST"),
        (["compile", "free.onnx", "--bounds", "n=8-1"], 2, "cannot read --bounds n=8-1"),
        (["compile", "free.onnx", "--bounds", "n=1-8/0"], 2, "cannot read --bounds n=1-8/0"),
        (["compile", "free.onnx", "--bounds", f"n=1-{'9' * 5000}"], 2, "cannot read --bounds n=1-9"),
        (["compile", "free.onnx", "--bounds", "n=1-8", "--bounds", "n=1-9"], 2, "the dimension 'n' twice"),
        (["run", "mlp.fusion", "--bounds", "n=1-8"], 2, "--bounds has no use with the saved module"),
        (["compile", "free.onnx", "--shape", "x=a,8,b"], 2, "--shape x=a,8,b contradicts the model"),
        (["run", "free.onnx", "--shape", "x=a,8"], 2, "--shape x=a,8 leaves open"),
        (["run", "mlp.fusion", "--shape", "x=a,8"], 2, "leaves open how large"),
        (["bench", "free.onnx", "--shape", "x=a,8"], 2, "have no use with bench"),
        (["convert", "free.onnx", "--shape", "x=a,8"], 2, "have no use with convert"),
        (["run", "mlp.onnx", "--shape", "x=3,8", "--shape", "x=3,8"], 2, "names the input 'x' twice"),
        (["run", "mlp.onnx", "--input", "x=a.npy", "--input", "x=b.npy"], 2, "names the input 'x' twice"),
        (["run", "mlp.onnx", "--shape", "x=3,9"], 2, "--shape x=3,9 contradicts"),
        (["run", "mlp.onnx", "--shape", "z=3,8"], 2, "F204"),
        (["run", "mlp.fusion", "--shape", "x=3,8"], 2, "no use"),
        *((["run", "mlp.fusion", *option], 2, f"{option[0]} has no use with") for option in COMPILE_OPTIONS),
        *((["compare", "mlp.fusion", "mlp.fusion", *option], 2, "has no use with") for option in COMPILE_OPTIONS),
        (["run", "mlp.onnx", "--input", "x=none.npy"], 2, "cannot read the array"),
        (["run", "mlp.onnx", "--input", "none.npy"], 2, "cannot read --input"),
        (["run", "mlp.onnx", "--effort", "extreme"], 2, "F502"),
        (["run", "mlp.onnx", "--target", "abacus"], 2, "F501"),
        (["run", "mlp.onnx", "--target", "llvm -mcpu=foo"], 2, "F501"),
        (["run", "mlp.onnx", "--threads", "0"], 2, "--threads 0 is not"),
        (["run", "mlp.onnx", "--threads", "10000"], 2, "1 to 1024"),
        (["compile", "mlp.fusion"], 2, "compiled module already"),
        (["compare", "mlp.fusion"], 2, "ONNX Runtime cannot run"),
        (["compare", "mlp.onnx", "--with", "fusion"], 2, "nothing to compare"),
        (["bench", "mlp.fusion"], 2, "saved module"),
        (["bench", "mlp.onnx", "--rounds", "0"], 2, "--rounds"),
        (["bench", "unknown.onnx"], 3, "F202"),
        (["compile", "unknown.onnx"], 3, "F202"),
        (["compile", "unknown.onnx", "--strict"], 3, "F202"),
    ],
)
def test_failures_are_one_message(
    arguments: list[str], expected: int, words: str, folder: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(folder)
    code, _, err = run(capsys, *arguments)
    assert code == expected
    assert words in err
    assert "Traceback" not in err


def test_a_pickle_is_not_read(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], object), allow_pickle=True)
    code, _, err = run(capsys, "run", folder / "mlp.onnx", "--input", f"x={tmp_path / 'x.npy'}")
    assert code == 2
    assert "cannot read the array" in err


def test_a_defect_of_fusion_ends_with_four(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr("fusion.load", fail)
    code, _, err = run(capsys, "run", folder / "mlp.fusion")
    assert code == 4
    assert "F901" in err
    assert "on purpose" in err


def test_a_defect_while_compiling_shows_where(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a pass failed")

    monkeypatch.setattr("fusion.pipeline.lower", fail)
    code, _, err = run(
        capsys, "compile", folder / "free.onnx", "-o", tmp_path / "m.fusion", "--shape", "x=5,8", "--strict"
    )
    assert code == 4
    assert "Traceback" in err
    assert "in fail" in err
    assert "[F901]" in err


_GATHER = onnx.parser.parse_model(
    """
    <ir_version: 10, opset_import: ["": 18]>
    graph (int32[batch,length] ids, int32[batch,length] mask) => (int32[batch,length] y) { y = Div (ids, mask) }
    """
)


@pytest.fixture(scope="module")
def divisor(folder: Path) -> Path:
    """A model of two integers with open dimensions that divides the one by the other, saved in two forms too."""
    onnx.save(_GATHER, folder / "divisor.onnx")
    module = fusion.compile(_GATHER, cache=False, wait=True, dynamic=False)
    for count, shape in enumerate([(2, 3), (1, 3)], 1):
        module(np.ones(shape, np.int32), np.ones(shape, np.int32))
        module.save(folder / f"divisor{count}.fusion")
    return folder


def test_all_open_inputs_are_named_as_the_model_names_them(divisor: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("run", "convert", "bench"):
        code, _, err = run(capsys, verb, divisor / "divisor.onnx")
        assert code == 2
        assert "--shape ids=batch,length --shape mask=batch,length" in err


def test_random_inputs_that_an_operator_does_not_take_are_named(
    divisor: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shapes = ("--shape", "ids=2,3")  # the mask's dimensions have the same names
    for verb in ("run", "compare"):
        code, _, err = run(capsys, verb, divisor / "divisor.onnx", *shapes)
        assert code == 2
        assert "[F302]" in err
        assert "Div 'y'" in err
        assert "--input ids=FILE.npy --input mask=FILE.npy" in err
    np.save(tmp_path / "ones.npy", np.ones((2, 3), np.int32))
    np.save(tmp_path / "zeros.npy", np.zeros((2, 3), np.int32))
    given = (*shapes, "--input", f"ids={tmp_path / 'ones.npy'}", "--input")
    assert run(capsys, "run", divisor / "divisor.onnx", *given, f"mask={tmp_path / 'ones.npy'}")[0] == 0
    code, _, err = run(capsys, "run", divisor / "divisor.onnx", *given, f"mask={tmp_path / 'zeros.npy'}")
    assert code == 2
    assert "random" not in err
    assert "hint:" in err


def test_an_input_that_the_model_has_not(divisor: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "ones.npy", np.ones((2, 3), np.int32))
    for model in ("divisor.onnx", "divisor1.fusion"):
        code, _, err = run(capsys, "run", divisor / model, "--input", f"mask_={tmp_path / 'ones.npy'}")
        assert code == 2
        assert "no input 'mask_'" in err
        assert "did you mean 'mask'?" in err


def test_a_saved_module_knows_the_shapes_it_has(
    divisor: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "ones.npy", np.ones((2, 3), np.int32))
    mask = ("--input", f"mask={tmp_path / 'ones.npy'}")
    # Random integers are 0 or 1: the divisor is given.
    assert run(capsys, "run", divisor / "divisor1.fusion", *mask)[0] == 0
    assert run(capsys, "run", divisor / "divisor2.fusion", *mask)[0] == 0
    code, _, err = run(capsys, "explain", "--profile", divisor / "divisor2.fusion")
    assert code == 2
    assert "--shape ids=2,3 --shape mask=2,3; or --shape ids=1,3 --shape mask=1,3" in err


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["compil", "m.onnx"], "did you mean compile?"),
        (["compile", "m.onnx", "--shpe", "x=1"], "did you mean --shape?"),
        (["compare", "m.onnx", "--with", "onnxruntim"], "did you mean onnxruntime?"),
        (["run", "m.onnx", "--threads", "many"], "--help lists all"),
    ],
)
def test_words_that_are_nearly_right(arguments: list[str], meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert meant in err
    assert len(err.splitlines()) <= 10


def test_what_the_cache_had_is_said(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSION_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FUSION_CACHE_SIZE", "1G")
    command = ("compile", folder / "mlp.onnx", "-o", tmp_path / "m.fusion")
    assert "compiled in" in run(capsys, *command)[1]
    assert "taken from the cache in" in run(capsys, *command)[1]


def test_what_onnx_runtime_cannot_run_is_no_fault_of_the_model(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 18]> graph (double[3] x) => (double[3] y) { y = Erf (x) }'
    )
    onnx.save(wide, folder / "erf.onnx")
    assert run(capsys, "run", folder / "erf.onnx")[0] == 0
    code, _, err = run(capsys, "compare", folder / "erf.onnx", "--with", "onnxruntime")
    assert code == 3
    assert "ONNX Runtime, which is compared with, cannot run" in err
    assert "replace the operator" not in err


def test_a_cache_that_cannot_be_made_is_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FUSION_CACHE", str(tmp_path / "file" / "nope"))
    monkeypatch.setenv("FUSION_CACHE_SIZE", "1G")
    code, data = run_json(capsys, "doctor")
    assert code == 0
    assert data["cache"]["good"] is False
    assert "not used" in data["cache"]["hint"]
