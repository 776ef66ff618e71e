"""Zoo models are made the same each time, and their inputs by seed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import bench.__main__
import fusion
from bench import zoo
from bench.zoo import open_batch, scale
from bench.zoo.registry import RECIPES
from fusion.errors import OptionError
from tests.targets import judge


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


def test_the_other_sets_are_known_by_name_but_not_part_of_the_first() -> None:
    first, second, *others = (zoo.names(which) for which in (zoo.ZOO, zoo.BEYOND, zoo.OPEN, zoo.RELATED))
    batches = zoo.names(zoo.BATCH)
    assert len(RECIPES) == len(first) + len(second) + len(batches) + sum(map(len, others))
    assert batches == [f"{name}{open_batch.SUFFIX}" for name in (*first, *second)]
    assert set(zoo.available(zoo.BEYOND)) <= set(second)
    assert set(first).isdisjoint(second)


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
def test_an_open_file_has_the_network_of_the_static_one_for_any_shape(cache: Path) -> None:
    opened, static = zoo.make("bert_tiny_open", cache), zoo.make("bert_tiny", cache)
    declared = onnx.load(opened.path).graph.input
    axes = [[dim.dim_param for dim in value.type.tensor_type.shape.dim] for value in declared]
    assert axes == [["batch", "length"]] * 3
    one, other = (onnxruntime.InferenceSession(model.path) for model in (opened, static))
    feeds = static.inputs(0)
    for found, expected in zip(one.run(None, feeds), other.run(None, feeds), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    hidden, pooled = one.run(None, {name: np.ones((3, 5), np.int64) for name in feeds})
    assert (hidden.shape, pooled.shape) == ((3, 5, 128), (3, 128))


@pytest.mark.parametrize("name", ["shufflenet", "conv3d", "silero_vad"])
def test_a_file_with_an_open_batch_has_the_network_for_any_batch(name: str, cache: Path) -> None:
    if f"{name}{open_batch.SUFFIX}" not in zoo.available(zoo.BATCH):
        pytest.skip(f"a package that {name} is made from is not installed")
    opened, static = zoo.make(f"{name}{open_batch.SUFFIX}", cache), zoo.make(name, cache)
    feeds = [static.inputs(seed) for seed in range(3)]
    batch = {
        key: value if axis is None else np.concatenate([each[key] for each in feeds], axis)
        for key, value in feeds[0].items()
        for axis in [open_batch.batch_axis(value.shape)]
    }
    assert {key: value.shape for key, value in batch.items()} == open_batch.batched(static.shapes, 3)
    one, other = (onnxruntime.InferenceSession(model.path) for model in (opened, static))
    each = [other.run(None, feed) for feed in feeds]
    for found, expected in zip(one.run(None, batch), zip(*each, strict=True), strict=True):
        joined = np.concatenate(expected, open_batch.batch_axis(expected[0].shape) or 0)
        np.testing.assert_allclose(found, joined, atol=1e-4)


@pytest.mark.parametrize("name", zoo.names(zoo.BEYOND))
def test_a_recipe_of_the_second_set_names_what_it_needs(name: str) -> None:
    recipe = RECIPES[name]
    assert "torch" in recipe.needs
    assert recipe.module is not None
    assert all(size > 0 for shape in recipe.shapes.values() for size in shape)
    assert set(recipe.ranges) == {"input_ids"} & set(recipe.shapes)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize("name", ["pointnet", "crnn"])
def test_one_of_the_second_set_is_the_same_each_time_and_compiles_right(
    name: str, cache: Path, tmp_path: Path
) -> None:
    made = zoo.make(name, cache)
    assert made.path.read_bytes() == zoo.make(name, tmp_path).path.read_bytes()
    feeds = made.inputs(0)
    judge(made, feeds, fusion.compile(made.path).run(feeds))


@pytest.mark.parametrize(
    ("layer", "sizes", "shape"),
    [
        ("Conv1d", (64, 64, 3), (1, 64, 300)),
        ("Conv3d", (16, 32, 3), (1, 16, 12, 12, 12)),
        ("ConvTranspose2d", (64, 32, 4, 2), (1, 64, 16, 16)),
        ("ConvTranspose2d", (64, 32, 2, 2), (1, 64, 16, 16)),
    ],
)
def test_start_weights_double_the_variance_that_a_relu_halves(
    layer: str, sizes: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    torch = pytest.importorskip("torch")
    from bench.zoo import weights

    torch.manual_seed(20)
    module = getattr(torch.nn, layer)(*sizes)
    weights.initialize(module)
    assert float(module(torch.randn(shape)).detach().var()) == pytest.approx(2, rel=0.2)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [([], zoo.available()), (["--beyond"], zoo.available(zoo.BEYOND)), (["unet"], ["unet"])],
)
def test_the_command_line_chooses_the_set(
    arguments: list[str], expected: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    chosen: list[str] = []

    def stop(name: str, options: Any) -> None:
        chosen.append(name)
        if chosen == expected:
            raise OptionError("all were asked for")

    monkeypatch.setattr(bench.__main__, "_compare", stop)
    monkeypatch.setattr(bench.__main__, "measure_machine", lambda threads: None)
    monkeypatch.setattr("sys.argv", ["bench", *arguments, "--out", str(tmp_path)])
    assert bench.__main__.main() == 2
    assert chosen == expected
