"""Zoo models are made the same each time, and their inputs by seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench import zoo
from bench.zoo import scale
from fusion.errors import OptionError


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("name", ["squeezenet", "ppocr_cls", "bert_tiny"])
def test_the_same_file_each_time(name: str, cache: Path, tmp_path: Path) -> None:
    made = zoo.make(name, cache)
    assert made.path.is_relative_to(cache)
    assert made.path.read_bytes() == zoo.make(name, tmp_path).path.read_bytes()
    assert {key: array.shape for key, array in made.inputs(0).items()} == dict(made.shapes)


def test_inputs_follow_their_seed(cache: Path) -> None:
    model = zoo.make("squeezenet", cache)
    one, same, other = (model.inputs(seed)["data_0"] for seed in (0, 0, 1))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_a_made_file_is_used_again(cache: Path) -> None:
    path = zoo.make("squeezenet", cache).path
    stamp = path.stat().st_mtime_ns
    assert zoo.make("squeezenet", cache).path.stat().st_mtime_ns == stamp


def test_an_unknown_name_is_an_option_error() -> None:
    with pytest.raises(OptionError, match="no model"):
        zoo.make("resnet51")


@pytest.mark.parametrize("bad", [np.full(4, 1e-21), np.full(4, np.nan), np.full(4, 1e9), np.ones(4)])
def test_outputs_without_meaning_are_refused(bad: np.ndarray) -> None:
    with pytest.raises(AssertionError):
        scale.check_output("y", bad, bad)
