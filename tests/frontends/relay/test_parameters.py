"""Files of parameters: TVM's list and .npz, whole, cut short and of other kinds; what `params=` takes."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tvm

from fusion.errors import FusionError, InvalidModelError, ModelFileError, OptionError, ParameterFileError
from fusion.frontends import import_model, open_model, read_signature
from fusion.frontends.relay.parameters import read_parameters
from fusion.frontends.relay.source import find_text
from fusion.frontends.relay.syntax import RelayModel

ARRAYS = {
    "layer1.0.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "scale": np.float32(0.5),
    "mask": np.array([True, False]),
    "half": np.arange(3).astype(np.float16),
    "brain": np.arange(3).astype(ml_dtypes.bfloat16),
    "count": np.array([2**40]),
    "none": np.zeros((0, 2), np.int8),
}
TEXT = (
    "def @main(%x: Tensor[(?, 3), float32], %w: Tensor[(3), float32], %p: (Tensor[(3), bfloat16], float32)) "
    "{ add(%x, %w) }"
)


def saved(arrays: dict[str, np.ndarray]) -> bytes:
    """Return what TVM's own function writes: its format has not changed since Relay."""
    return bytes(tvm.runtime.save_param_dict({name: tvm.runtime.tensor(array) for name, array in arrays.items()}))


def same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].dtype == np.asarray(array).dtype
        np.testing.assert_array_equal(found[name], array)


def test_what_tvm_writes(tmp_path: Path) -> None:
    data = saved(ARRAYS)
    same(read_parameters(data), ARRAYS)
    (tmp_path / "m.params").write_bytes(data)
    same(read_parameters(tmp_path / "m.params"), ARRAYS)
    same(read_parameters(saved({})), {})


def test_npz(tmp_path: Path) -> None:
    plain = {name: array for name, array in ARRAYS.items() if name != "brain"}
    np.savez(tmp_path / "m.npz", **plain)
    same(read_parameters(str(tmp_path / "m.npz")), plain)
    same(read_parameters((tmp_path / "m.npz").read_bytes()), plain)


def test_a_dict_of_anything_that_gives_arrays() -> None:
    tensor = tvm.runtime.tensor(np.arange(3, dtype=np.float32))
    same(read_parameters({"a": tensor, "b": np.float32(1)}), {"a": np.arange(3, dtype=np.float32), "b": np.float32(1)})


@pytest.mark.parametrize("cut", range(0, 300, 13))
def test_a_list_cut_short_is_an_error(cut: int) -> None:
    with pytest.raises(ParameterFileError):
        read_parameters(saved(ARRAYS)[:cut])


@pytest.mark.parametrize("at", range(0, 200, 3))
@pytest.mark.parametrize("value", [0, 0x7F, 0xFF])
def test_a_damaged_list_gives_arrays_or_an_error(at: int, value: int) -> None:
    data = bytearray(saved(ARRAYS))
    data[at] = value
    try:
        found = read_parameters(bytes(data))
    except ParameterFileError:
        return
    assert len(found) == len(ARRAYS)


def test_wrong_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ParameterFileError, match="No such file"):
        read_parameters(tmp_path / "none.npz")
    with pytest.raises(ParameterFileError, match="irectory"):
        read_parameters(tmp_path)
    np.savez(tmp_path / "whole.npz", **{"a": np.arange(1000)})
    whole = (tmp_path / "whole.npz").read_bytes()
    np.savez(tmp_path / "objects.npz", **{"a": np.array([{}], object)})
    objects = (tmp_path / "objects.npz").read_bytes()
    for data in (b"", b"x", b"\x93NUMPY", saved(ARRAYS) + b"x", whole[:200], whole[:-30], objects):
        with pytest.raises(ParameterFileError):
            read_parameters(data)


@pytest.mark.parametrize("source", [3, [np.zeros(3)], {"a": [1, 2]}, {"a": "text"}, {"a": None}])
def test_what_is_no_array_is_an_error(source: object) -> None:
    with pytest.raises(OptionError):
        read_parameters(source)  # type: ignore[arg-type]


def opened(params: object) -> RelayModel:
    model = open_model(TEXT, params)  # type: ignore[arg-type]
    assert isinstance(model, RelayModel)
    return model


def test_parameters_that_are_given_are_no_inputs() -> None:
    assert [spec.name for spec in read_signature(TEXT)[0]] == ["x", "w", "p.0", "p.1"]
    model = opened({"w": np.zeros(3, np.float32), "p.1": np.float32(1)})
    assert [spec.name for spec in read_signature(model)[0]] == ["x", "p.0"]


@pytest.mark.parametrize(
    ("params", "what"),
    [
        ({"y": np.zeros(3, np.float32)}, "params= names 'y', which @main does not have"),
        ({"w": np.zeros(4, np.float32)}, r"the parameter 'w' is float32\[4\]"),
        ({"w": np.zeros((1, 3), np.float32)}, r"the parameter 'w' is float32\[1, 3\]"),
        ({"w": np.zeros(3, np.float64)}, r"the parameter 'w' is float64\[3\]"),
        ({"p": np.zeros(3, np.float32)}, "params= names 'p'"),
    ],
)
def test_parameters_must_fit(params: object, what: str) -> None:
    with pytest.raises(OptionError, match=what):
        opened(params)


def test_a_file_may_hold_more_but_not_only_others() -> None:
    other = {"folded_away": np.zeros(3, np.float32)}
    assert opened(saved({"w": np.zeros(3, np.float32), **other})).params.keys() == {"w"}
    with pytest.raises(OptionError, match="folded_away"):
        opened(saved(other))


def test_an_npz_keeps_the_bytes_of_bfloat16(tmp_path: Path) -> None:
    array = np.arange(3).astype(ml_dtypes.bfloat16)
    np.savez(tmp_path / "m.npz", **{"p.0": array})
    np.testing.assert_array_equal(opened(tmp_path / "m.npz").params["p.0"], array)


def test_other_models_take_no_parameters() -> None:
    with pytest.raises(OptionError, match=r"is of no use with 'model\.onnx'"):
        open_model("model.onnx", {})
    with pytest.raises(OptionError, match="a IRModule"):
        open_model(tvm.IRModule({}), {})


class Printing:
    """As TVM's modules of old: with a flag that leaves the metadata out."""

    def astext(self, show_meta_data: bool = False) -> str:
        return TEXT if show_meta_data else ""


class Plain:
    def __init__(self, text: object) -> None:
        self.text = text

    def astext(self) -> object:
        if isinstance(self.text, Exception):
            raise self.text
        return self.text


def test_where_a_text_may_come_from(tmp_path: Path) -> None:
    (tmp_path / "m.relay").write_text(TEXT)
    (tmp_path / "m.txt").write_text(f'// mine\n#[version = "0.0.5"]\n{TEXT}')
    (tmp_path / "mark.txt").write_text(f"\ufeff{TEXT}")
    weights = {"w": tvm.runtime.tensor(np.zeros(3, np.float32)), "unused": tvm.runtime.tensor(np.zeros(3, np.float32))}
    for model in (TEXT, tmp_path / "m.relay", str(tmp_path / "m.txt"), tmp_path / "mark.txt", Printing(), Plain(TEXT)):
        assert len(read_signature(model)[0]) == 4
    for model in (Printing(), Plain(TEXT)):
        assert open_model((model, weights)).params.keys() == {"w"}
        assert open_model((model, weights), {"p.1": np.float32(1)}).params.keys() == {"w", "p.1"}


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("none.relay", ModelFileError), (Plain(3), InvalidModelError), (Plain(ValueError("no")), InvalidModelError),
        ("def @f(%x: float32) { %x }", InvalidModelError), ("def @main(%x) { %x }", InvalidModelError),
        ("none.txt", ModelFileError), ((Plain(TEXT), 3), OptionError), ("v0.0.4\ndef @main() { () }", FusionError),
    ],
)  # fmt: skip
def test_what_is_no_text_is_an_error(model: object, kind: type[FusionError]) -> None:
    with pytest.raises(kind):
        import_model(model)


@pytest.mark.parametrize("comments", ["/" * 4000, "/**/" * 1000, "// " * 1000, "/* * */\n//\n" * 300])
def test_comments_do_not_keep_anyone_waiting(comments: str, tmp_path: Path) -> None:
    (tmp_path / "header.h").write_text(f"{comments}\nint x;")
    assert find_text(tmp_path / "header.h") is None
    (tmp_path / "m.txt").write_text(f"{comments}\n{TEXT}")
    assert find_text(tmp_path / "m.txt") is not None


def test_files_that_are_no_text_are_errors(tmp_path: Path) -> None:
    (tmp_path / "m.relay").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ModelFileError, match=r"m\.relay"):
        import_model(tmp_path / "m.relay")
    with pytest.raises(ModelFileError, match=str(tmp_path)):
        import_model(tmp_path)
