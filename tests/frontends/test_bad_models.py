"""Every bad model is a FusionError with a code, a place and a hint; none ends the process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from fusion import errors
from fusion.frontends import import_model, read_signature
from tests.frontends.models import branch, choose, make, mlp, node


def _saved(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    "data", [b"", b"garbage", b"\x00" * 64, bytes(range(256))], ids=["empty", "text", "zeros", "bytes"]
)
def test_garbage(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(errors.ModelFileError) as caught:
        import_model(_saved(tmp_path, data))
    assert "model.onnx" in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_truncated(tmp_path: Path, share: float) -> None:
    data = mlp().SerializeToString()
    with pytest.raises((errors.ModelFileError, errors.InvalidModelError)):
        import_model(_saved(tmp_path, data[: int(len(data) * share)]))


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(errors.ModelFileError):
        import_model(tmp_path / "absent.onnx")
    with pytest.raises(errors.ModelFileError):
        read_signature(str(tmp_path / "absent.onnx"))


def _external(tmp_path: Path, location: str) -> Path:
    model = mlp()
    tensor = model.graph.initializer[0]
    onnx.external_data_helper.set_external_data(tensor, location=location)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    return _saved(tmp_path, model.SerializeToString())


def test_missing_external_data(tmp_path: Path) -> None:
    with pytest.raises(errors.ModelFileError, match="external data"):
        import_model(_external(tmp_path, "absent.bin"))


@pytest.mark.parametrize("location", ["../outside.bin", "a/../../outside.bin", "/etc/hostname"])
def test_escaping_external_data(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (tmp_path / "outside.bin").write_bytes(bytes(96))
    with pytest.raises(errors.ModelFileError, match="external data"):
        import_model(_external(folder, location))


def test_external_data_behind_a_link(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (tmp_path / "outside.bin").write_bytes(bytes(96))
    (folder / "weights.bin").symlink_to(tmp_path / "outside.bin")
    with pytest.raises(errors.ModelFileError, match="external data"):
        import_model(_external(folder, "weights.bin"))


def test_external_data_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(mlp(), path, save_as_external_data=True, size_threshold=0)
    assert import_model(path).inputs[0].shape == (4, 8)


def test_external_data_of_a_proto(tmp_path: Path) -> None:
    model = onnx.load(_external(tmp_path, "w.bin"), load_external_data=False)
    with pytest.raises(errors.FusionError):
        import_model(model)


def test_cycle() -> None:
    model = make([node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"])], {"x": [2]}, ["b"])
    with pytest.raises(errors.InvalidModelError, match="cycle") as caught:
        import_model(model)
    assert "Add" in caught.value.where
    assert "a_node" in caught.value.where


def test_unsorted_nodes_are_sorted() -> None:
    model = make([node("Relu", ["a"], ["b"]), node("Add", ["x", "x"], ["a"])], {"x": [2]}, ["b"])
    assert import_model(model).fallbacks == ()


def test_empty_graph() -> None:
    with pytest.raises(errors.InvalidModelError, match="empty"):
        import_model(make([], {"x": [2]}, []))


def test_undefined_value() -> None:
    with pytest.raises(errors.InvalidModelError) as caught:
        import_model(make([node("Relu", ["nowhere"], ["y"])], {"x": [2]}, ["y"]))
    assert "nowhere" in str(caught.value)


@pytest.mark.parametrize("strict", [False, True])
def test_operator_nobody_knows(strict: bool) -> None:
    custom = make(
        [helper.make_node("Mystery", ["x"], ["y"], name="odd", domain="my.domain")], {"x": [2]}, ["y"], my_domain=1
    )
    with pytest.raises(errors.UnsupportedOperatorError, match="Mystery"):
        import_model(custom, strict=strict)
    with pytest.raises(errors.UnsupportedOperatorError, match="Mystery"):
        import_model(make([node("Mystery", ["x"], ["y"])], {"x": [2]}, ["y"]), strict=strict)


@pytest.mark.parametrize("name", ["odd", ""])
def test_operator_nobody_knows_within_a_model(name: str) -> None:
    """What it returns is of no known type, so that the whole model goes to ONNX Runtime."""
    custom = helper.make_node("Mystery", ["a"], ["h"], name=name, domain="my.domain")
    made = make([node("Relu", ["x"], ["a"]), custom, node("Relu", ["h"], ["y"])], {"x": [2]}, ["y"], my_domain=3)
    with pytest.raises(errors.UnsupportedOperatorError) as caught:
        import_model(made)
    assert caught.value.where == f"Mystery {name or 'h'!r} (opset 3)"


def test_strict_names_what_needs_the_fallback() -> None:
    model = make([node("Det", ["x"], ["d"]), node("Relu", ["d"], ["y"])], {"x": [2, 2]}, ["y"])
    assert [item.op for item in import_model(model).fallbacks] == ["Det"]
    with pytest.raises(errors.UnsupportedOperatorError, match=r"1 node.*Det") as caught:
        import_model(model, strict=True)
    assert "d_node" in caught.value.where
    assert "20" in caught.value.where


def test_infinite_weight_is_a_mask() -> None:
    mask = np.array([0.0, -np.inf], dtype=np.float32)
    assert import_model(make([node("Add", ["x", "m"], ["y"])], {"x": [2]}, ["y"], {"m": mask})).fallbacks == ()


def test_weight_that_does_not_fill_its_shape() -> None:
    model = mlp()
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-4]
    with pytest.raises(errors.InvalidModelError):
        import_model(model)


def test_not_a_model() -> None:
    with pytest.raises(errors.OptionError, match="dict"):
        import_model({})


class TestWindows:
    """The attributes of a window have entries for each spatial axis of the image."""

    weight = np.ones((3, 3, 3, 3), dtype=np.float32)

    def refused(self, op: str, **attributes: list[int]) -> str:
        """Return why a window over x[1, 3, 8, 8] is refused."""
        weights = {"w": self.weight} if op.startswith("Conv") else {}
        with pytest.raises(errors.ShapeError, match=op) as caught:
            import_model(make([node(op, ["x", *weights], ["y"], **attributes)], {"x": [1, 3, 8, 8]}, ["y"], weights))
        assert caught.value.where == f"{op} 'y_node'"
        assert caught.value.hint
        return caught.value.why

    @pytest.mark.parametrize("op", ["Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool"])
    @pytest.mark.parametrize("name", ["kernel_shape", "strides", "dilations", "pads"])
    @pytest.mark.parametrize("entries", [1, 3])
    def test_entries(self, op: str, name: str, entries: int) -> None:
        kernel = {} if op.startswith("Conv") else {"kernel_shape": [3, 3]}
        assert self.refused(op, **{**kernel, name: [1] * entries}).startswith(f"{name} has {entries} entries")

    @pytest.mark.parametrize("name", ["output_padding", "output_shape"])
    def test_entries_of_a_transposed_convolution(self, name: str) -> None:
        assert name in self.refused("ConvTranspose", strides=[2, 2], **{name: [1]})

    def test_no_entries(self) -> None:
        """ONNX Runtime takes them for the default of a convolution, and refuses them of a pool."""
        with pytest.raises(errors.FusionError, match="MaxPool") as caught:
            self.import_without("MaxPool", "strides")
        assert "strides has incorrect size" in caught.value.why
        with pytest.raises(errors.ShapeError, match="MaxPool") as caught:
            self.import_without("MaxPool", "kernel_shape")
        assert caught.value.why.startswith("kernel_shape has 0 entries")

    def import_without(self, op: str, name: str) -> None:
        """Import a window over x[1, 3, 8, 8] whose attribute `name` is an empty list."""
        made = make([node(op, ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2])], {"x": [1, 3, 8, 8]}, ["y"])
        next(attribute for attribute in made.graph.node[0].attribute if attribute.name == name).ClearField("ints")
        import_model(made)


CONV, MATMUL, GEMM = (node(op, ["x", "w"], ["h"]) for op in ("Conv", "MatMul", "Gemm"))


class TestOperands:
    """Channels and inner dimensions that contradict the weights are the error of that node, whatever reads it."""

    @pytest.mark.parametrize(
        ("first", "shape", "weights", "why"),
        [
            (CONV, [1, 3, 8, 8], [(8, 4, 3, 3)], "3 channels"),
            (node("Conv", ["x", "w"], ["h"], group=2), [1, 6, 8, 8], [(8, 6, 3, 3)], "6 channels"),
            (node("Conv", ["x", "w"], ["h"], group=3), [1, 3, 8, 8], [(8, 1, 3, 3)], "3 groups"),
            (node("Conv", ["x", "w"], ["h"], kernel_shape=[5, 5]), [1, 3, 8, 8], [(8, 3, 3, 3)], "kernel_shape"),
            (CONV, [1, 3, 8, 8], [(8, 3, 3)], "its weights"),
            (node("Conv", ["x", "w", "b"], ["h"]), [1, 3, 8, 8], [(8, 3, 3, 3), (5,)], "bias"),
            (node("ConvTranspose", ["x", "w"], ["h"]), [1, 3, 8, 8], [(8, 3, 3, 3)], "3 channels"),
            (node("ConvTranspose", ["x", "w"], ["h"], group=2), [1, 3, 8, 8], [(3, 4, 3, 3)], "2 groups"),
            (MATMUL, [4, 8], [(7, 3)], "8 elements"),
            (MATMUL, [8], [(7,)], "8 elements"),
            (MATMUL, [2, 4, 8], [(3, 8, 5)], "broadcast"),
            (GEMM, [4, 8], [(7, 3)], "8 elements"),
            (node("Gemm", ["x", "w"], ["h"], transA=1, transB=1), [4, 8], [(3, 5)], "4 elements"),
            (node("Gemm", ["x", "w", "b"], ["h"]), [4, 8], [(8, 3), (4,)], "broadcast"),
        ],
    )
    @pytest.mark.parametrize("behind", [[], [node("Softmax", ["h"], ["y"])]], ids=["alone", "softmax"])
    def test_contradict(
        self, first: onnx.NodeProto, shape: list[int], weights: list[tuple[int, ...]], why: str,
        behind: list[onnx.NodeProto],
    ) -> None:  # fmt: skip
        arrays = {name: np.ones(size, dtype=np.float32) for name, size in zip("wb", weights, strict=False)}
        with pytest.raises(errors.ShapeError, match=first.op_type) as caught:
            import_model(make([first, *behind], {"x": shape}, ["y" if behind else "h"], arrays))
        assert caught.value.where == f"{first.op_type} 'h_node'"
        assert why in caught.value.why

    @pytest.mark.parametrize(
        ("first", "shape", "weights"),
        [
            (node("Conv", ["x", "w", "b"], ["h"], group=2), [1, 6, 8, 8], [(8, 3, 3, 3), (8,)]),
            (node("ConvTranspose", ["x", "w", "b"], ["h"], group=2), [1, 4, 8, 8], [(4, 3, 3, 3), (6,)]),
            (MATMUL, [8], [(8,)]),
            (MATMUL, [8], [(2, 8, 3)]),
            (MATMUL, [5, 1, 4, 8], [(2, 8, 3)]),
            (node("Gemm", ["x", "w", "b"], ["h"], transA=1, transB=1), [4, 8], [(3, 4), (8, 1)]),
            (node("Gemm", ["x", "w", "b"], ["h"]), [4, 8], [(8, 3), ()]),
        ],
    )
    def test_agree(self, first: onnx.NodeProto, shape: list[int], weights: list[tuple[int, ...]]) -> None:
        arrays = {name: np.ones(size, dtype=np.float32) for name, size in zip("wb", weights, strict=False)}
        assert import_model(make([first], {"x": shape}, ["h"], arrays)).fallbacks == ()

    def test_unknown_size(self) -> None:
        """Only the run knows how many elements are not zero: ONNX Runtime finds whether they fit."""
        weights = {"w": np.ones((3, 2), dtype=np.float32)}
        nodes = [node("NonZero", ["x"], ["n"]), helper.make_node("Cast", ["n"], ["f"], to=TensorProto.FLOAT)]
        made = make([*nodes, node("MatMul", ["f", "w"], ["y"])], {"x": [2, 2]}, ["y"], weights)
        assert "MatMul" in {item.op for item in import_model(made).fallbacks}

    def test_in_a_branch_for_other_sizes(self) -> None:
        """The condition tells that it does not run."""
        weights = {"w": np.ones((7, 8), dtype=np.float32)}
        wrong = branch([node("MatMul", ["x", "w"], ["e"])], ["e"], weights)
        made = make([choose("c", ["y"], branch([node("Relu", ["x"], ["t"])], ["t"]), wrong)], {"x": [4, 8]}, ["y"])
        made.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
        assert [item.op for item in import_model(made).fallbacks] == ["If"]


@pytest.mark.parametrize("behind", [[], [node("Softmax", ["h"], ["y"])]], ids=["alone", "softmax"])
def test_operands_that_do_not_broadcast(behind: list[onnx.NodeProto]) -> None:
    made = make([node("Add", ["x", "z"], ["h"]), *behind], {"x": [2, 3], "z": [4, 5]}, ["y" if behind else "h"])
    with pytest.raises(errors.ShapeError, match=r"\[2, 3\] and \[4, 5\] do not broadcast") as caught:
        import_model(made)
    assert caught.value.where == "Add 'h_node'"


class TestShapes:
    """`shapes=` is checked before anything is compiled."""

    model = make([node("Add", ["x", "z"], ["y"])], {"x": ["batch", 3], "z": ["batch", 3]}, ["y"])

    def test_one_input_binds_the_other(self) -> None:
        imported = import_model(self.model, {"x": (5, 3)})
        assert [spec.shape for spec in (*imported.inputs, *imported.outputs)] == [(5, 3)] * 3

    @pytest.mark.parametrize(
        "shapes",
        [{"nobody": (1, 3)}, {"x": (1, 3, 1)}, {"x": (1, 4)}, {"x": (-1, 3)}, {}],
        ids=["name", "rank", "size", "negative", "open"],
    )
    def test_wrong(self, shapes: dict[str, tuple[int, ...]]) -> None:
        with pytest.raises(errors.ShapeError):
            import_model(self.model, shapes)

    @pytest.mark.parametrize(
        ("shape", "example", "given"),
        [(["batch", 3], "(batch, 3)", (1, 3)), (None, "(batch, channels, height, width)", (1, 3, 224, 224))],
    )
    def test_open_shape_has_an_example(
        self, shape: list[str | int] | None, example: str, given: tuple[int, ...]
    ) -> None:
        made = make([node("Relu", ["x"], ["y"])], {"x": shape or []}, ["y"])
        if shape is None:
            made.graph.input[0].type.tensor_type.ClearField("shape")
        with pytest.raises(errors.ShapeError, match="input 'x'") as caught:
            import_model(made)
        assert caught.value.hint.endswith(f"shapes={{'x': {example}}}")
        import_model(made, {"x": given})

    def test_minus_one_is_open(self) -> None:
        """Paddle's exporter writes -1 for a dimension that it leaves open."""
        model = make([node("Relu", ["x"], ["y"])], {"x": [-1, 3]}, ["y"])
        assert read_signature(model)[0][0].shape == (None, 3)
        assert import_model(model, {"x": (2, 3)}).outputs[0].shape == (2, 3)

    def test_signature_tells_what_is_open(self) -> None:
        inputs, outputs = read_signature(self.model)
        assert [spec.shape for spec in inputs] == [(None, 3), (None, 3)]
        assert [spec.name for spec in outputs] == ["y"]
