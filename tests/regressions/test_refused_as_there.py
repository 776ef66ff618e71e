"""Nodes that ONNX Runtime refuses and that ran: operands that do not broadcast yet, weights of pixels that are none, an
axis named twice by the run, operands of another rank than a scalar or a list has, a window that fits no image, be there
images or not, a ratio of elements to drop that is none, though nothing is dropped, and attributes past their limits."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import fusion
from fusion.errors import ExecutionError, FusionError, ShapeError
from tests.frontends.against_onnxruntime import check, onnxruntime_runs

pytestmark = pytest.mark.unoptimised

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("operator", ["Max", "Mean", "Min", "Sum"])
def test_broadcasting_before_set_8(operator: str) -> None:
    text = f"graph (float[2,3] x, float[3] y) => (float[2,3] z) {{ z = {operator} (x, y) }}"
    old, new = (onnx.parser.parse_model(f'<ir_version: 4, opset_import: ["": {opset}]> {text}') for opset in (7, 8))
    inputs = {"x": X, "y": X[0]}
    with pytest.raises(Exception, match="same shape"):
        onnxruntime_runs(old, inputs)
    with pytest.raises(ShapeError, match="alike before operator set 8"):
        fusion.compile(old)
    if operator == "Sum":
        check(new, inputs)


def test_exclude_outside_of_a_nearest_resize() -> None:
    model = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["": 18]>
        graph (float[1,1,2,3] x) => (float[1,1,4,6] y) <float[4] scales = {1, 1, 2, 2}>
        { y = Resize <exclude_outside = 1> (x, "", scales) }
        """
    )
    with pytest.raises(Exception, match="exclude_outside"):
        onnxruntime_runs(model, {"x": X[None, None]})
    with pytest.raises(ShapeError, match="exclude_outside"):
        fusion.compile(model)


def test_an_axis_twice() -> None:
    model = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["": 18]>
        graph (float[1,1] x, int64[2] axes) => (float[1,1,1,1] y) { y = Unsqueeze (x, axes) }
        """
    )
    inputs = {"x": X[:1, :1], "axes": np.array([1, 0])}
    module = check(model, inputs, fallbacks=None)
    twice = {**inputs, "axes": np.array([1, 1])}
    with pytest.raises(Exception, match="duplicate"):
        onnxruntime_runs(model, twice)
    with pytest.raises(ExecutionError):
        module.run(twice)


@pytest.mark.parametrize(("shape", "axes"), [("1", [1]), ("1,1", [0, 2])])
def test_an_axis_that_a_squeeze_has_not(shape: str, axes: list[int]) -> None:
    text = f"graph (float[{shape}] x, int64[{len(axes)}] axes) => (float y) {{ y = Squeeze (x, axes) }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {text}')
    model.graph.output[0].type.tensor_type.ClearField("shape")
    inputs = {"x": np.ones([1] * len(axes), np.float32), "axes": np.array(axes)}
    module = fusion.compile(model)
    module.run({**inputs, "axes": np.arange(len(axes))})
    with pytest.raises(ExecutionError):
        module.run(inputs)


def test_trees_without_targets() -> None:
    node = onnx.helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=0)
    infos = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, None]) for name in "xy"]
    infos[0].type.tensor_type.shape.dim[1].dim_value = 3
    graph = onnx.helper.make_graph([node], "trees", infos[:1], infos[1:])
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    with pytest.raises(ShapeError, match="n_targets"):
        fusion.compile(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8))


_GRAMS = (
    'max_gram_length = 1, min_gram_length = 1, max_skip_count = 0, mode = "TF", ngram_counts = [0], '
    "ngram_indexes = [0, 1], pool_int64s = [2, 3]"
)


@pytest.mark.parametrize(
    ("types", "body"),
    [
        ("float[2,3] x, float[1,1] low", "y = Clip (x, low)"),
        ("float[2,3] x, float low, float[1,1,1] high", "y = Clip (x, low, high)"),
        ("float[2,3] x", "axis = Constant <value = int64[1,1] {1}> () y = CumSum (x, axis)"),
        ("float[2,3] x, int64[1,1] k", "y = Trilu (x, k)"),
        ("int64[2] x, int64[1,1] depth, float[2] pair", "y = OneHot (x, depth, pair)"),
        ("float x, int64[1] repeats", "y = Tile (x, repeats)"),
        ("float[2,3] x, int64[1] repeats", "y = Tile (x, repeats)"),
        ("float[2,3] x", "sizes = Constant <value = int64[1,1] {1}> () y = CenterCropPad <axes = [0]> (x, sizes)"),
        ("float[2,3] x", "axes = Constant <value = int64[1,1] {0}> () y = Unsqueeze (x, axes)"),
        ("float[2,3] x", "shape = Constant <value = int64 {3}> () y = ConstantOfShape (shape)"),
        ("float[1,1,1] x", "zero = Constant <value = int64 {0}> () y = DFT (x, zero)"),
        ("int64[0,3] x", f"y = TfIdfVectorizer <{_GRAMS}> (x)"),
        ("float[1,1,2,3] x", 'scales = Constant <value_floats = [1.0, 1.0, 2.0, 0.0]> () y = Resize (x, "", scales)'),
        ("float[1,1,1,1] x, int64[1,1,1,1] at", "y = MaxUnpool <kernel_shape = [2, 2], pads = [0, 0, 2, 0]> (x, at)"),
        ("float[1,2] x, float[2] scale, float[2] bias", "y = InstanceNormalization (x, scale, bias)"),
        ("float[4] x", "y, z, rest = Split <num_outputs = 3> (x)"),
        ("int64[0] size", "y = HannWindow (size)"),
        ("uint8[1,1,3,3] x, uint8[1,1,2,2] w, uint8[1,1] zero", "y = ConvInteger (x, w, zero)"),
        ("uint8[1,1,3,3] x, uint8[1,1,2,2] w, uint8 zero, uint8[1,1] of", "y = ConvInteger (x, w, zero, of)"),
        ("uint8[0,2,1] x, int8[2,1,2] w", "y = ConvInteger <group = 2> (x, w)"),
        ("float[0,2,0] x, float[2,2,2] w", "y = Conv (x, w)"),
        ("float[1,0,1] x, float[2,0,2] w", "y = Conv (x, w)"),
        ("float[1,1,1] x, float[1,1,2] w", 'y = Conv <auto_pad = ""> (x, w)'),
    ],
)
def test_operands_of_other_shapes(types: str, body: str) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> graph ({types}) => (y) {{ {body} }}')
    inputs = {
        value.name: np.ones(
            [dim.dim_value for dim in value.type.tensor_type.shape.dim],
            onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type),
        )
        for value in model.graph.input
    }
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        onnxruntime_runs(model, inputs)
    with pytest.raises(FusionError):
        fusion.compile(model)


@pytest.mark.parametrize("operator", ["Hardmax", "LogSoftmax", "Softmax"])
@pytest.mark.parametrize(("shape", "named"), [("", "<axis = 0>"), ("", "<axis = -1>"), ("", ""), ("[1]", "")])
def test_axes_of_old_softmaxes(operator: str, shape: str, named: str) -> None:
    text = f"graph (float{shape} x) => (float{shape} y) {{ y = {operator} {named} (x) }}"
    model = onnx.parser.parse_model(f'<ir_version: 5, opset_import: ["": 10]> {text}')
    with pytest.raises(Exception, match="valid range"):
        onnxruntime_runs(model, {"x": np.ones([1] * len(shape[:1]), np.float32)})
    with pytest.raises(ShapeError, match=r"axis is 1|scalar"):
        fusion.compile(model)


@pytest.mark.parametrize("outputs", ["y", "y, kept"])
@pytest.mark.parametrize("ratio", [np.nan, -0.5, 1.0])
def test_ratios_of_a_dropout(ratio: float, outputs: str) -> None:
    """As constants and as inputs; ONNX Runtime does not look at those of an attribute."""
    text = f"graph (float[2,3] x, float ratio) => (float[2,3] y) {{ {outputs} = Dropout (x, ratio) }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 13]> {text}')
    fixed = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 13]> {text}')
    fixed.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(ratio), "ratio"))
    del fixed.graph.input[1]
    module = check(model, {"x": X, "ratio": np.array(0.5, np.float32)})
    for refused, given in ((module, {"x": X, "ratio": np.array(ratio, np.float32)}), (fusion.compile(fixed), {"x": X})):
        with pytest.raises(ExecutionError, match="ratio"):
            refused.run(given)


def test_the_ratio_of_an_old_dropout() -> None:
    text = "graph (float[2,3] x) => (float[2,3] y) { y = Dropout <ratio = 2.0> (x) }"
    check(onnx.parser.parse_model(f'<ir_version: 5, opset_import: ["": 10]> {text}'), {"x": X})


@pytest.mark.parametrize("opset", [8, 9])
def test_scales_of_an_upsample(opset: int) -> None:
    """It does not shrink, be they an attribute or an operand."""
    given, read = ("<scales = [1.0, 0.5]>", "x") if opset < 9 else ("", "x, scales")
    model = onnx.parser.parse_model(
        f"""<ir_version: 4, opset_import: ["": {opset}]> graph (float[2,3] x) => (float y)
        <float[2] scales = {{1, 0.5}}> {{ y = Upsample {given} ({read}) }}"""
    )
    with pytest.raises(Exception, match="greater than or equal to 1"):
        onnxruntime_runs(model, {"x": X})
    with pytest.raises(ShapeError, match="1 or more"):
        fusion.compile(model)


def test_a_longer_mask_of_attention() -> None:
    text = "graph (float[1,1,2,4] x, float[2,3] mask) => (float[1,1,2,4] y) { y = Attention (x, x, x, mask) }"
    model = onnx.parser.parse_model(f'<ir_version: 11, opset_import: ["": 24]> {text}')
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        onnxruntime_runs(model, {"x": np.ones((1, 1, 2, 4), np.float32), "mask": np.ones((2, 3), np.float32)})
    with pytest.raises(ShapeError, match="mask"):
        fusion.compile(model)


@pytest.mark.parametrize("at", [2, -3])
def test_constant_positions_outside(at: int) -> None:
    """Onnx's reference, which folds constants, takes them modulo the axis."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 18]> graph () => (float[1,1] y)
        <float[2,1] x = {{1, 2}}, int64[1,1] at = {{{at}}}> {{ y = GatherElements (x, at) }}"""
    )
    with pytest.raises(Exception, match="Out of range"):
        onnxruntime_runs(model, {})
    with pytest.raises(ExecutionError, match=f"index {at}"):
        fusion.compile(model).run({})


def test_statistics_of_elements() -> None:
    text = "graph (float[1,2,3] x, float[2] s) => (float y) { y = BatchNormalization <spatial = 2> (x, s, s, s, s) }"
    model = onnx.parser.parse_model(f'<ir_version: 4, opset_import: ["": 8]> {text}')
    with pytest.raises(Exception, match="Invalid input scale"):
        onnxruntime_runs(model, {"x": X[None, :2], "s": np.ones(2, np.float32)})
    with pytest.raises(ShapeError, match="for the elements"):
        fusion.compile(model)


DTYPES = {onnx.TensorProto.INT64: np.int64, onnx.TensorProto.FLOAT: np.float32}
_PAST = {
    "LRN of no share": ("float[1,3,2,2] x", "LRN <size = 3, alpha = 0.0> (x)", "alpha is 0.0"),
    "LRN of a negative power": ("float[1,3,2,2] x", "LRN <size = 3, beta = -1.0> (x)", "beta is -1.0"),
    "LRN of an even size": ("float[1,3,2,2] x", "LRN <size = 2> (x)", "size is 2"),
    "no axes": ("float[1,3,2,2] x", "MeanVarianceNormalization <axes: ints = []> (x)", "axes is"),
    "a signal without a frame": ("float[1,3,1] x, float[4] w", "STFT (x, step, w)", "no frame of 4"),
    "a signal that is a row": ("float[8] x, float[4] w", "STFT (x, step, w)", "the signal is"),
    "a frame longer than its signal": ("float[1,3,1] x", 'STFT (x, step, "", length)', "no frame of 4"),
    "no classes of a likelihood": ("float[2,3] x, int64[3] t", "NegativeLogLikelihoodLoss (x, t)", "the classes are"),
    "no classes": ("float[2,3] x, int64[3] t", "SoftmaxCrossEntropyLoss (x, t)", "the classes are"),
}


@pytest.mark.parametrize("name", _PAST)
def test_past_their_limits(name: str) -> None:
    inputs, node, why = _PAST[name]
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
        graph ({inputs}) => (float y) <int64 step = {{2}}, int64 length = {{4}}> {{ y = {node} }}"""
    )
    given = {
        value.name: np.ones([dim.dim_value for dim in kind.shape.dim], DTYPES[kind.elem_type])
        for value in model.graph.input
        if (kind := value.type.tensor_type)
    }
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        onnxruntime_runs(model, given)
    with pytest.raises(ShapeError, match=why):
        fusion.compile(model)


@pytest.mark.parametrize(
    ("lengths", "entries", "needed"),
    [((1, 2), 7, 0), ((1, 2), 6, 7), ((2, 2), 6, 7), ((1, 1), 4, 0), ((1, 1), 3, 4), ((3, 3), 3, 0)],
)
def test_a_tf_idf_of_more_n_grams_than_entries(lengths: tuple[int, int], entries: int, needed: int) -> None:
    """ONNX Runtime reads behind the entries, which may end the process; they are of the n-grams that it looks for, and
    of shorter ones."""
    model = _tf_idf(lengths, entries)
    if not needed:
        check(model, {"x": np.array([2, 3, 5, 4, 7, 8])}, fallbacks=None)
        return
    with pytest.raises(ShapeError, match=f"{entries} entries for {needed} n-grams"):
        fusion.compile(model)


def test_a_tf_idf_that_looks_for_strings_among_integers() -> None:
    check(_tf_idf((1, 2), 3, pool_strings=[*"abcdefghij"]), {"x": np.array([2, 3, 5, 4, 7, 8])}, fallbacks=None)


def _tf_idf(lengths: tuple[int, int], entries: int, **more: list[str]) -> onnx.ModelProto:
    """Return a model that counts 4 single numbers, 3 pairs, and no three."""
    node = onnx.helper.make_node(
        "TfIdfVectorizer", ["x"], ["y"], mode="TF", min_gram_length=lengths[0], max_gram_length=lengths[1],
        max_skip_count=0, ngram_counts=[0, 4, 10], ngram_indexes=list(range(entries)),
        pool_int64s=[2, 3, 5, 4, 5, 6, 7, 8, 6, 7], **more,
    )  # fmt: skip
    infos = [
        onnx.helper.make_tensor_value_info(name, kind, shape)
        for name, kind, shape in (("x", onnx.TensorProto.INT64, [6]), ("y", onnx.TensorProto.FLOAT, None))
    ]
    graph = onnx.helper.make_graph([node], "counts", infos[:1], infos[1:])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
