"""Models of a machine: as text, on disk, damaged, and how far they are trusted."""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.tuning.records import HERE
from tuning import model_store
from tuning.cost_model import MeasuredSpace
from tuning.machine_model import MachineModel
from tuning.model_store import ModelStore


def space(seed: int, noise: float, name: str = "size", gain: float = 0.3) -> MeasuredSpace:
    """Return a kernel of which tiles of 3 take so much less time than others, but for `noise`."""
    draw = np.random.default_rng(seed)
    tiles = np.concatenate([[1], draw.integers(1, 5, 11)])
    seconds = np.where(tiles == 3, (1 - gain) * 1e-3, 1e-3) * np.exp(noise * draw.standard_normal(12))
    return MeasuredSpace([{"tile": float(tile), name: float(seed)} for tile in tiles], list(seconds))


@pytest.fixture(scope="module")
def model() -> MachineModel:
    measured = {
        "matmul": [space(seed, 0.01) for seed in range(20)],
        "conv2d": [space(seed, 1.0, "rows", gain=0.0) for seed in range(20)],
        "rare": [space(9, 0.1)] * 2,
    }
    return MachineModel.fit(measured, HERE, 1000.0)


def test_it_is_as_good_as_it_is_on_kernels_that_it_has_not_seen(model: MachineModel) -> None:
    assert model.model is not None
    ratios = model.model.ratios([{"tile": tile, "size": 5.0} for tile in (1.0, 3.0)])
    assert set(model.errors) == {"matmul"}, "of the rare there are too few, of the others all are as fast"
    assert ratios[1] < np.exp(-model.errors["matmul"]), "so much less time is worth it"
    assert (model.kernels, model.points) == (42, 12 * 42)


def test_as_text_it_is_the_same(model: MachineModel) -> None:
    read = MachineModel.from_text(model.as_text())
    assert read == model
    assert read.model == model.model


def test_its_digest_is_of_what_it_chooses(model: MachineModel) -> None:
    assert len({each.digest for each in (model, replace(model, made_at=1001.0, kernels=43))}) == 1
    others = [replace(model, line=f"{model.line} "), replace(model, errors={"matmul": 1.0}), replace(model, errors={})]
    assert len({each.digest for each in (model, *others)}) == 4
    assert others[-1].digest == replace(others[0], errors={}).digest == "", "nothing is ranked by either"


def test_damage_anywhere_is_told(model: MachineModel) -> None:
    text, draw = model.as_text(), random.Random(0)
    for _ in range(100):
        place = draw.randrange(len(text) - 1)
        damaged = text[:place] + draw.choice("0x\n\"") + text[place + 1 :]
        if damaged != text:
            with pytest.raises(ValueError, match=r".+"):
                MachineModel.from_text(damaged)


def test_what_is_no_model_is_not_used(model: MachineModel, caplog: pytest.LogCaptureFixture) -> None:
    """Its sum is right: somebody has written it so."""
    for line in ("[]", '{"names":["tile"],"trees":"[]"}', '{"names":[],"trees":"{}"}'):
        foreign = MachineModel.from_text(replace(model, line=line).as_text())
        assert (foreign.model, foreign.model) == (None, None)
    assert len(caplog.records) == 3


def test_it_is_found_where_it_was_written_and_in_its_environment_only(model: MachineModel, tmp_path: Path) -> None:
    store = ModelStore.beside(tmp_path / "folder" / "my.sqlite")
    assert store.read(HERE) is None
    assert not store.folder.exists()
    (tmp_path / "folder").mkdir()
    assert store.write(model)
    assert store.write(replace(model, made_at=2000.0))
    found = store.read(HERE)
    assert found is not None
    assert found.made_at == 2000.0
    assert len(list(store.folder.iterdir())) == 1
    for change in ({"cpu": "b"}, {"threads": 1}, {"target": "c"}, {"versions": {"apache-tvm": "2"}}):
        assert store.read(replace(HERE, **change)) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"[]\n", b"{}", b"[" * 100_000, b'{"sum":"0"}\n{}'])
def test_a_damaged_file_is_none(
    model: MachineModel, tmp_path: Path, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    model_store._warn.cache_clear()
    store = ModelStore(tmp_path / "models")
    store.write(model)
    (path,) = store.folder.iterdir()
    path.write_bytes(text)
    assert store.read(HERE) is None
    assert store.read(HERE) is None
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1
    assert store.write(model)
    assert store.read(HERE) == model
