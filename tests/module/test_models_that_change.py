"""A module reads its model again for new shapes and other weights, and is of one model all its life."""

from __future__ import annotations

import dataclasses
import functools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import tvm
from onnx import numpy_helper
from tvm import relax

import fusion
from fusion import model_digest, pinned_model
from fusion.errors import ModelChangedError, ModelFileError
from fusion.frontends.torch import program_files
from fusion.model_digest import ModelDigest, digest_model
from fusion.pinned_model import PinnedModel
from tests.module.small_models import FLOAT, mlp, mlp_numpy, weights

Change = Callable[[], None]
compiled = functools.partial(fusion.compile, dynamic=False)
"""With a form for each shape, for which the model is read again; that for all sizes is made once."""
RELAY = """#[version = "0.0.5"]
def @main(%x: Tensor[(?, 8), float32], %w: Tensor[(4, 8), float32]) -> Tensor[(?, 4), float32] {
  nn.dense(%x, %w, units=None)
}
"""


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, 8)).astype(np.float32)


def doubled(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return `model` after its first weight has become twice as large."""
    tensor = model.graph.initializer[0]
    tensor.CopyFrom(numpy_helper.from_array(2 * numpy_helper.to_array(tensor), tensor.name))
    return model


def a_file(folder: Path) -> tuple[dict[str, Any], Change]:
    path = folder / "model.onnx"
    onnx.save(mlp("n"), path)
    return {"model": path}, lambda: onnx.save(doubled(mlp("n")), path)


def external_data(folder: Path) -> tuple[dict[str, Any], Change]:
    path = folder / "model.onnx"
    onnx.save(mlp("n"), path, save_as_external_data=True, location="weights", size_threshold=0)

    def change() -> None:
        (folder / "weights").write_bytes(bytes((folder / "weights").stat().st_size))

    return {"model": str(path)}, change


def a_proto(folder: Path) -> tuple[dict[str, Any], Change]:
    model = mlp("n")
    return {"model": model}, lambda: doubled(model) and None


def a_relax_module(folder: Path) -> tuple[dict[str, Any], Change]:
    def build(matrix: np.ndarray) -> tvm.IRModule:
        builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((tvm.tirx.Var("n", "int64"), 8), "float32"))
        with builder.function("main", [x]):
            with builder.dataflow():
                result = builder.emit_output(relax.op.matmul(x, relax.const(matrix)))
            builder.emit_func_output(result)
        return builder.get()

    module, other = build(weights()[0]), build(weights(1)[0])

    def change() -> None:
        module["main"] = other["main"]

    return {"model": module}, change


def parameters_of_relay(folder: Path) -> tuple[dict[str, Any], Change]:
    array = np.ones((4, 8), np.float32)
    return {"model": RELAY, "params": {"w": array}}, lambda: array.fill(3)


@dataclasses.dataclass
class Answer:
    """What torch does not write to a file."""

    y: torch.Tensor


torch.export.register_dataclass(Answer)


class Linear(torch.nn.Module):
    """A layer, and its result in a class of its own where that is asked for."""

    def __init__(self, kind: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.kind = torch.nn.Linear(8, 4), kind

    def forward(self, x: torch.Tensor) -> Any:
        return self.kind(self.layer(x))


def _torch(kind: Callable[[torch.Tensor], Any]) -> tuple[dict[str, Any], Change]:
    module = Linear(kind)

    def change() -> None:
        with torch.no_grad():
            module.layer.weight.mul_(2)

    sizes = ({0: torch.export.Dim("n")},)
    return {"model": (module, (torch.ones(3, 8),)), "dynamic_shapes": sizes}, change


KINDS: dict[str, Callable[[Path], tuple[dict[str, Any], Change]]] = {
    "file": a_file,
    "external data": external_data,
    "ModelProto": a_proto,
    "Relax": a_relax_module,
    "Relay": parameters_of_relay,
    "torch": lambda _: _torch(torch.tanh),
    "torch, not to be written": lambda _: _torch(Answer),
}


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_shape_of_a_changed_model_is_an_error(
    kind: str, cache: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSION_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FUSION_CACHE_SIZE", "1G")
    options, change = KINDS[kind](tmp_path)
    module = compiled(**options, threads=1, cache=cache, wait=True)
    before = module(rows(1))[0], module(rows(2))[0]
    change()
    with pytest.raises(ModelChangedError) as error:
        module(rows(3))
    assert {"file": "'model.onnx'", "external data": "'weights'"}.get(kind, "in memory") in error.value.where
    np.testing.assert_array_equal(module(rows(1))[0], before[0])
    np.testing.assert_array_equal(module(rows(2))[0], before[1])
    assert not np.allclose(compiled(**options, threads=1, cache=cache, wait=True)(rows(1))[0], before[0])


def test_before_the_first_call_too(tmp_path: Path) -> None:
    options, change = a_file(tmp_path)
    module = compiled(**options, threads=1, cache=False, wait=True)
    change()
    with pytest.raises(ModelChangedError):
        module(rows(1))


@pytest.fixture
def digests(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """An event for which whatever sums up a model waits before it reads it."""
    may_read = threading.Event()

    def digest(*model: Any) -> ModelDigest:
        assert may_read.wait(60)
        return digest_model(*model)

    monkeypatch.setattr(pinned_model, "digest_model", digest)
    yield may_read
    may_read.set()


def test_compiling_begins_while_a_file_is_summed_up(tmp_path: Path, digests: threading.Event) -> None:
    options, change = a_file(tmp_path)
    used = list[ModelDigest | None]()
    pinned = PinnedModel(options["model"])
    pinned.pin()

    def use(_: Any, digest: ModelDigest | None) -> None:
        used.append(digest)
        digests.set()

    pinned.read(use)
    pinned.read(use)
    assert used == [None, digest_model(options["model"])]
    change()
    with pytest.raises(ModelChangedError, match=r"model\.onnx"):
        pinned.read(use)
    assert len(used) == 2


def test_a_file_that_changes_before_it_is_summed_up_has_changed(tmp_path: Path, digests: threading.Event) -> None:
    options, change = a_file(tmp_path)
    module = compiled(**options, threads=1, cache=False, wait=True)
    change()
    digests.set()
    for _ in range(2):
        with pytest.raises(ModelChangedError):
            module(rows(1))


def test_a_forked_process_sums_up_a_file_itself(tmp_path: Path, digests: threading.Event) -> None:
    """The thread of its parent does not exist there."""
    options, change = a_file(tmp_path)
    pinned = [PinnedModel(options["model"]) for _ in range(2)]
    for each in pinned:
        each.pin()
        assert each._begun is not None
        each._begun = dataclasses.replace(each._begun, process=os.getpid() + 1, call=Future())
    digests.set()
    expected = digest_model(options["model"])
    assert pinned[0].read(lambda _, digest: digest) == expected
    change()
    for each in pinned:
        with pytest.raises(ModelChangedError):
            each.read(lambda _, digest: digest)


def test_a_file_of_the_same_bytes_is_the_same(tmp_path: Path) -> None:
    options, _ = a_file(tmp_path)
    module = compiled(**options, threads=1, wait=True)
    module(rows(1))
    os.utime(options["model"], (1, 1))
    module(rows(2))
    onnx.save(mlp("n"), tmp_path / "again")
    os.replace(tmp_path / "again", options["model"])
    np.testing.assert_allclose(module(rows(3))[0], mlp_numpy(rows(3)), rtol=1e-5, atol=1e-5)


def test_of_a_file_that_is_gone_the_error_says_what_it_is_for(tmp_path: Path) -> None:
    options, _ = a_file(tmp_path)
    module = compiled(**options, threads=1, wait=True)
    expected = module(rows(1))[0]
    os.remove(options["model"])
    with pytest.raises(ModelFileError, match="for new shapes") as error:
        module(rows(2))
    assert "shapes=" in error.value.hint
    np.testing.assert_array_equal(module(rows(1))[0], expected)


@pytest.mark.parametrize("kind", KINDS)
def test_calls_of_known_shapes_ask_for_no_digest(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(pinned_model, "digest_model", lambda *model: asked.append(model) or digest_model(*model))
    options, _ = KINDS[kind](tmp_path)
    module = compiled(**options, threads=1, cache=False, wait=True)
    module(rows(1))
    known = len(asked)
    module(rows(1))
    assert len(asked) == known
    module(rows(2))
    files = kind in ("file", "external data")
    assert len(asked) == (1 if files else known + 1)


@pytest.mark.parametrize("kind", ["file", "ModelProto"])
def test_nothing_stands_in_for_a_changed_model(kind: str, tmp_path: Path) -> None:
    options, change = KINDS[kind](tmp_path)
    module = compiled(**options, threads=1)
    module(rows(1), wait=True)
    change()
    for _ in range(2):
        with pytest.raises(ModelChangedError):
            module(rows(2))


@pytest.mark.parametrize("kind", ["file", "ModelProto"])
@pytest.mark.parametrize("batch", [2, "n"])
def test_other_weights_are_for_the_model_that_was_compiled(kind: str, batch: int | str, tmp_path: Path) -> None:
    model, path = mlp(batch), tmp_path / "model.onnx"
    for name, shape in (("first", (8, 32)), ("second", (32, 4))):
        model.graph.input.append(onnx.helper.make_tensor_value_info(name, FLOAT, shape))
    onnx.save(model, path)
    module = compiled(path if kind == "file" else model, threads=1, cache=False, wait=True)
    given = {"x": rows(2), "second": weights(1)[1]}
    before = module.run(given)["y"]
    onnx.save(doubled(model), path)
    np.testing.assert_array_equal(module.run(given)["y"], before)
    with pytest.raises(ModelChangedError):
        module.run({"x": rows(2), "first": weights(1)[0]})


def test_a_program_that_torch_writes_at_one_time_and_not_at_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch refuses to write one while another thread of the process does."""
    options, change = KINDS["torch"](tmp_path)
    module = compiled(**options, threads=1, cache=False)
    module(rows(1))

    def fail(program: object) -> bytes:
        raise AssertionError("Refusing to stomp on existing FakeTensor reducer")

    with monkeypatch.context() as patch:
        patch.setattr(model_digest, "program_files", fail)
        module(rows(2))
    change()
    with monkeypatch.context() as patch:
        patch.setattr(model_digest, "program_files", fail)
        with pytest.raises(ModelChangedError):
            module(rows(3))


def test_torch_programs_are_written_by_one_thread_at_a_time() -> None:
    program = torch.export.export(torch.nn.Linear(4, 4), (torch.ones(2, 4),))
    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(lambda one: tuple(program_files(one)), [program] * 24))) == 1


def test_weights_of_a_torch_program_are_summed_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sums(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(256, 256)
            self.register_buffer("kept", torch.ones(256, 256))
            self.register_buffer("left_out", torch.ones(256, 256), persistent=False)
            self.constant = torch.ones(256, 256)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) @ self.kept @ self.left_out @ self.constant

    lengths: list[int] = []
    checksum = model_digest.checksum
    monkeypatch.setattr(model_digest, "checksum", lambda data: (lengths.append(len(data)), checksum(data))[1])
    model = fusion.api.open_model((Sums().eval(), (torch.ones(2, 256),)))
    digests = {digest_model(model).digest, digest_model(model).digest}
    assert sum(lengths) < 2 * 1.1 * (4 * 256 * 256 * 4 + 256 * 4)
    for value in (*model.program.state_dict.values(), *model.program.constants.values()):
        before = len(digests)
        with torch.no_grad():
            value += 1
        digests.add(digest_model(model).digest)
        assert len(digests) == before + 1
    assert len(digests) == 6
