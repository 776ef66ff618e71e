"""A saved file that is cut short, damaged, or of another version or machine is an error, no crash, no wrong result."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fusion
from fusion.errors import FusionError, SavedFileError, TargetError
from fusion.module.archive import write_archive
from fusion.module.cpu_features import missing_features
from tests.module import small_models

X = np.ones((3, 8), np.float32)
SEED = 20261121


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return several kernels with buffers between them."""
    path = tmp_path_factory.mktemp("saved") / "columns.fusion"
    fusion.compile(small_models.softmax_of_columns()).save(path)
    return path


def rewritten(saved: Path, path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Return a copy of `saved` with its manifest changed."""
    with zipfile.ZipFile(saved) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(members["manifest.json"])
    change(manifest)
    write_archive(path, members | {"manifest.json": json.dumps(manifest).encode()})
    return path


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "none.fusion", tmp_path):
        with pytest.raises(SavedFileError, match="cannot open"):
            fusion.load(path)


@pytest.mark.parametrize("content", [b"", b"not a module", b"PK\x05\x06" + bytes(18), bytes(1000)])
def test_garbage(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "garbage.fusion"
    path.write_bytes(content)
    with pytest.raises(SavedFileError, match="not a saved module"):
        fusion.load(path)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9, 0.99, 0.9999])
def test_a_file_cut_short(saved: Path, tmp_path: Path, share: float) -> None:
    data = saved.read_bytes()
    path = tmp_path / "short.fusion"
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(SavedFileError, match="cut short"):
        fusion.load(path)


@pytest.mark.parametrize("member", ["form0/module.so", "weights.safetensors", "manifest.json"])
def test_a_damaged_member(saved: Path, tmp_path: Path, member: str) -> None:
    data = bytearray(saved.read_bytes())
    with zipfile.ZipFile(saved) as archive:
        info, content = archive.getinfo(member), archive.read(member)
    start = data.index(content, info.header_offset)
    data[start + len(content) // 2] ^= 0x10
    path = tmp_path / "damaged.fusion"
    path.write_bytes(data)
    with pytest.raises(SavedFileError, match="damaged"):
        fusion.load(path)


@pytest.mark.parametrize("member", ["form0/module.so", "weights.safetensors", "manifest.json"])
def test_a_missing_member(saved: Path, tmp_path: Path, member: str) -> None:
    with zipfile.ZipFile(saved) as archive:
        members = {name: archive.read(name) for name in archive.namelist() if name != member}
    path = tmp_path / "missing.fusion"
    write_archive(path, members)
    with pytest.raises(SavedFileError, match="damaged") as caught:
        fusion.load(path)
    assert member in caught.value.why


def test_another_format(saved: Path, tmp_path: Path) -> None:
    path = rewritten(saved, tmp_path / "f.fusion", lambda m: m.update(format=99, fusion="9.9"))
    with pytest.raises(SavedFileError, match="has format 99") as caught:
        fusion.load(path)
    assert "fusion 9.9" in caught.value.why
    assert "compile the model again" in caught.value.hint


def test_another_tvm(saved: Path, tmp_path: Path) -> None:
    path = rewritten(saved, tmp_path / "t.fusion", lambda m: m.update(tvm="0.99"))
    with pytest.raises(SavedFileError, match=r"compiled with TVM 0\.99") as caught:
        fusion.load(path)
    assert "apache-tvm==0.99" in caught.value.hint


def lack_a_feature(manifest: dict[str, Any]) -> None:
    absent = missing_features(("avx512vp2intersect", "amx-fp16", "sve2"))[0]
    manifest["settings"]["features"].append(absent)
    manifest["notes_of_test"] = absent


def test_a_cpu_without_a_feature(saved: Path, tmp_path: Path) -> None:
    named: dict[str, Any] = {}

    def change(manifest: dict[str, Any]) -> None:
        lack_a_feature(manifest)
        named["feature"] = manifest.pop("notes_of_test")

    path = rewritten(saved, tmp_path / "c.fusion", change)
    with pytest.raises(TargetError, match="lacks features") as caught:
        fusion.load(path)
    assert named["feature"] in caught.value.what
    assert "llvm -mcpu=" in caught.value.hint


def test_another_architecture(saved: Path, tmp_path: Path) -> None:
    path = rewritten(saved, tmp_path / "a.fusion", lambda m: m["settings"].update(architecture="riscv64"))
    with pytest.raises(TargetError, match="compiled for riscv64"):
        fusion.load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.pop("inputs"),
        lambda m: m.update(forms=[]),
        lambda m: m.update(forms={}),
        lambda m: m["settings"].update(threads="two"),
        lambda m: m["inputs"][0].update(shape=[3, "eight"]),
        lambda m: m["forms"][0]["plan"].update(storages=[-1]),
        lambda m: m["forms"][0]["plan"]["buffers"][0].update(storage=99),
        lambda m: m["forms"][0]["plan"]["buffers"][0].update(dtype="float99"),
        lambda m: m["forms"][0]["weight_types"][0].update(shape=[1 << 40]),
        lambda m: m["forms"][0]["plan"]["calls"][0]["arguments"][0].update(index=7),
        lambda m: m["forms"][0]["plan"]["calls"][0]["arguments"][0].update(index=-1),
        lambda m: m["forms"][0]["plan"]["calls"][0]["arguments"][0].update(kind="output"),
        lambda m: m["forms"][0]["plan"]["calls"][0]["arguments"][0].update(shape=[3, 9]),
        lambda m: m["forms"][0]["plan"]["calls"][0]["arguments"][0].update(shape=[-1, 8]),
        lambda m: m["forms"][0]["plan"]["calls"][0]["arguments"][0].update(dtype="float99"),
        lambda m: m["forms"][0]["plan"]["outputs"].clear(),
        lambda m: m["forms"][0]["inputs"][0].update(shape=[3, 7]),
        lambda m: m["forms"][0]["inputs"][0].update(name="z"),
        lambda m: m["forms"][0].update(outputs=[]),
        lambda m: m["inputs"].clear(),
        lambda m: m["forms"][0].update(plan=None),
        lambda m: m["forms"][0].update(code="manifest.json"),
        lambda m: m["forms"][0].update(weights="manifest.json"),
    ],
)
def test_a_manifest_that_does_not_fit(saved: Path, tmp_path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = rewritten(saved, tmp_path / "m.fusion", change)
    with pytest.raises(SavedFileError):
        fusion.load(path)


def test_compressed_members_are_refused(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "compressed.fusion"
    with zipfile.ZipFile(saved) as source, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    with pytest.raises(SavedFileError, match="damaged") as caught:
        fusion.load(path)
    assert "compressed" in caught.value.why


def test_no_damage_crashes_the_process(saved: Path, tmp_path: Path) -> None:
    """Flips bits at random places in a process of its own: each file loads as it was or is refused."""
    shutil.copy(saved, tmp_path / "good.fusion")
    done = subprocess.run(
        [sys.executable, "-m", "tests.bad_input.damage", str(tmp_path), str(SEED)],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, f"seed {SEED}: {done.stdout[-2000:]}{done.stderr[-2000:]}"


def damage(folder: Path, seed: int, rounds: int = 300) -> None:
    """Load files with one to three bytes changed, or a tail cut; print the damage first, so that a crash names it."""
    good = (folder / "good.fusion").read_bytes()
    expected = fusion.load(folder / "good.fusion")(X)[0]
    rng = random.Random(seed)
    # Most of the file is code under a checksum; the directory at its end and the headers are where parsing happens.
    edges = [*range(0, 400), *range(len(good) - 400, len(good))]
    for number in range(rounds):
        data = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            data[rng.choice(edges) if rng.random() < 0.8 else rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.1:
            del data[rng.randrange(len(data)) :]
        path = folder / f"{number % 2}.fusion"
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        try:
            result = fusion.load(path)(X)[0]
        except FusionError:
            continue
        assert np.array_equal(result, expected), f"round {number}: a damaged file gave a wrong result"
