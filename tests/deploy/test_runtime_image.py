"""What deploy/Dockerfile makes runs saved modules, is small, and says what it lacks."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import fusion
from tests.deploy.image import ROOT, Image, build_image, read_requirements
from tests.imported import PACKAGES
from tests.module import small_models

X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)
_MOST_BYTES = 140e6
"""docs/deployment.md says 122 MB; releases of NumPy and others differ by a few."""
_RUN = """
import sys, numpy, fusion
from fusion.errors import FusionError
try:
    numpy.save(sys.argv[3], fusion.load(sys.argv[1])(numpy.load(sys.argv[2]))[0])
except FusionError as error:
    print(error)
print(*sorted({"tvm", "onnx", "onnxruntime"} & sys.modules.keys()))
"""
_REFUSED = """
import sys, fusion
module = fusion.load(sys.argv[1])
for call in ("fusion.compile('m.onnx')", "fusion.convert('m.relay')", "module.profile(seconds=0.01)"):
    try:
        eval(call)
    except fusion.FusionError as error:
        print(error.code, "apache-tvm==" in error.hint)
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    folder = tmp_path_factory.mktemp("image")
    yield build_image(ROOT / "deploy" / "Dockerfile", folder)
    shutil.rmtree(folder)  # half a gigabyte, which pytest would keep


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "mlp.fusion"
    fusion.compile(small_models.mlp()).save(path)
    return path


def run(image: Image, path: Path, **variables: str) -> tuple[np.ndarray | None, str]:
    """Return the first output of the module at `path` on `X`, computed in the image, and what was printed."""
    given, output = path.with_name("x.npy"), path.with_name("y.npy")
    output.unlink(missing_ok=True)
    np.save(given, X)
    done = image.run("-c", _RUN, str(path), str(given), str(output), **variables)
    assert (done.returncode, done.stderr) == (0, "")
    return np.load(output) if output.exists() else None, done.stdout.strip()


def test_annotations_of_what_is_installed_are_read(image: Image) -> None:
    """Type checkers read those of a package only if the marker of PEP 561 lies in it, beside its sources."""
    assert [name for name in PACKAGES if not (image.files / "site" / name / "py.typed").is_file()] == []


def test_a_saved_module_returns_the_same(image: Image, saved: Path) -> None:
    found, printed = run(image, saved)
    np.testing.assert_array_equal(found, fusion.load(saved)(X)[0])
    assert printed == ""


def test_the_command_runs_saved_modules_and_nothing_else(image: Image, saved: Path, tmp_path: Path) -> None:
    done = image.enter("run", str(saved))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("y: float32[3, 4]")
    page = tmp_path / "page.html"
    assert image.enter("explain", str(saved), "--html", str(page)).returncode == 0
    assert page.stat().st_size
    model = tmp_path / "m.onnx"
    onnx.save(small_models.mlp(), model)
    refused = image.enter("run", str(model))
    assert refused.returncode == 2
    assert "[F504] the compiler is not installed" in refused.stderr  # behind a line of progress on a slow machine
    doctor = image.enter("doctor")
    assert re.search(r"compiler +missing", doctor.stdout)
    assert "Traceback" not in doctor.stderr


def test_what_needs_the_compiler_says_so(image: Image, saved: Path) -> None:
    done = image.run("-c", _REFUSED, str(saved))
    assert done.stdout.splitlines() == ["F504 True"] * 3, done.stderr


def test_parts_on_onnx_runtime_need_it(image: Image, tmp_path: Path) -> None:
    """They say what to install, and run once it is."""
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["b"]), helper.make_node("Det", ["b"], ["y"])]
    values = [("x", small_models.FLOAT, [3, 8])], [("y", small_models.FLOAT, [6])]
    module = fusion.compile(small_models.model(nodes, *values, {"shape": np.array([6, 2, 2])}))
    module.save(tmp_path / "det.fusion")
    found, printed = run(image, tmp_path / "det.fusion")
    assert found is None
    assert "[F504]" in printed
    assert "pip install onnxruntime onnx" in printed
    added = _linked(("onnx", "onnxruntime", "flatbuffers", "protobuf", "packaging"), tmp_path / "added")
    found, _ = run(image, tmp_path / "det.fusion", PYTHONPATH=f"{image.variables['PYTHONPATH']}{os.pathsep}{added}")
    np.testing.assert_array_equal(found, module(X)[0])


def _linked(distributions: Sequence[str], folder: Path) -> Path:
    folder.mkdir()
    for name in distributions:
        files = importlib.metadata.distribution(name).files or ()
        for top in {file.parts[0] for file in files if ".." not in file.parts}:
            (folder / top).symlink_to(importlib.metadata.distribution(name).locate_file(top))  # type: ignore[arg-type]
    return folder


def test_it_is_small_and_its_packages_are_as_documented(image: Image) -> None:
    site = image.files / "site"
    assert sum(file.stat().st_size for file in image.files.rglob("*")) < _MOST_BYTES
    assert not list(site.rglob("libtvm_compiler*"))
    (tops,) = site.glob("fusion-*.dist-info/top_level.txt")
    assert tops.read_text().split() == ["backends", "bench", "fusion", "partition", "placement", "tuning"]


def test_requirements_are_those_of_the_whole() -> None:
    """But for what is a dependency of these, which the others need and fusion does not name."""
    listed = {str(requirement) for requirement in read_requirements(ROOT / "deploy" / "requirements.txt")}
    whole = set(re.findall(r'^    "(.+)",$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    assert listed - whole == {"typing_extensions>=4.13", "MarkupSafe>=2.0"}
