"""Numbers at run time that no model should be given: indices, sizes, axes and divisors at and past their limits."""

from __future__ import annotations

import numpy as np

from tests.fuzz.case import Case
from tests.fuzz.draw import limits
from tests.fuzz.graphs import Maker, add_node, choose_opset, finished, newest

HOSTILE: dict[tuple[str, str], tuple[int, ...]] = {
    ("", "AffineGrid"): (1,),
    ("", "Attention"): (3, 6),
    ("", "BitShift"): (1,),
    ("", "CenterCropPad"): (1,),
    ("", "Clip"): (1, 2),
    ("", "Col2Im"): (1, 2),
    ("", "Compress"): (1,),
    ("", "ConstantOfShape"): (0,),
    ("", "CumProd"): (1,),
    ("", "CumSum"): (1,),
    ("", "DFT"): (1, 2),
    ("", "DeformConv"): (2, 4),
    ("", "DequantizeLinear"): (1, 2),
    ("", "Div"): (0, 1),
    ("", "Expand"): (1,),
    ("", "GRU"): (4,),
    ("", "Gather"): (1,),
    ("", "GatherElements"): (1,),
    ("", "GatherND"): (1,),
    ("", "GridSample"): (1,),
    ("", "HannWindow"): (0,),
    ("", "LSTM"): (4,),
    ("", "Loop"): (0,),
    ("", "MaxRoiPool"): (1,),
    ("", "MaxUnpool"): (1,),
    ("", "MelWeightMatrix"): (0, 1, 2, 3, 4),
    ("", "Mod"): (0, 1),
    ("", "NegativeLogLikelihoodLoss"): (1,),
    ("", "NonMaxSuppression"): (0, 1, 2, 3, 4),
    ("", "OneHot"): (0, 1),
    ("", "Pad"): (1, 3),
    ("", "Pow"): (0, 1),
    ("", "QLinearConv"): (1, 2, 4, 5, 6, 7),
    ("", "QuantizeLinear"): (0, 1, 2),
    ("", "RNN"): (4,),
    ("", "Range"): (0, 1, 2),
    ("", "ReduceMax"): (1,),
    ("", "ReduceSum"): (1,),
    ("", "Reshape"): (1,),
    ("", "Resize"): (1, 2, 3),
    ("", "ReverseSequence"): (1,),
    ("", "RoiAlign"): (1, 2),
    ("", "RotaryEmbedding"): (3,),
    ("", "STFT"): (1, 3),
    ("", "Scatter"): (1,),
    ("", "ScatterElements"): (1,),
    ("", "ScatterND"): (1,),
    ("", "SequenceAt"): (1,),
    ("", "SequenceErase"): (1,),
    ("", "SequenceInsert"): (2,),
    ("", "Slice"): (1, 2, 3, 4),
    ("", "SoftmaxCrossEntropyLoss"): (1,),
    ("", "Split"): (1,),
    ("", "SplitToSequence"): (1,),
    ("", "Squeeze"): (1,),
    ("", "TensorScatter"): (2,),
    ("", "Tile"): (1,),
    ("", "TopK"): (1,),
    ("", "Trilu"): (1,),
    ("", "Unsqueeze"): (1,),
    ("", "Upsample"): (1,),
    ("ai.onnx.ml", "ArrayFeatureExtractor"): (1,),
    ("ai.onnx.ml", "OneHotEncoder"): (0,),
    ("ai.onnx.ml", "CategoryMapper"): (0,),
    ("", "TfIdfVectorizer"): (0,),
}
"""By operator, the inputs whose numbers it may not take as they come."""

_FAR = (2**31 - 1, 2**31, -(2**31), 2**32 + 1, 2**62, -(2**63), 2**63 - 1, 1000, -1000)
_REAL = (np.nan, np.inf, -np.inf, 1e20, -1e20, 3e38, 1e-40, 0.0, -1.0)


def make_case(seed: int) -> Case:
    """Return a node, all operands of which come at run time, and numbers for it some of which are hostile."""
    rng = np.random.default_rng([seed, 2])
    domain, operator = list(HOSTILE)[int(rng.integers(len(HOSTILE)))]
    version = choose_opset(rng, domain, operator)
    opsets = {"": version if domain == "" else newest(""), **({domain: version} if domain else {})}
    maker = Maker(rng, opsets[""], opsets, odd=False, fixed=0.0)
    add_node(maker, domain, operator)
    notes = [_attack(maker, position) for position in HOSTILE[domain, operator] if rng.random() < 0.8]
    return finished(maker, "data", seed, "; ".join(filter(None, notes)))


def _attack(maker: Maker, position: int) -> str:
    """Change numbers of input `position` of the node."""
    (node,) = maker.nodes
    name = node.input[position] if position < len(node.input) else ""
    array = maker.inputs.get(name)
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iufb" or not array.size:
        return ""
    changed, rng = array.copy(), maker.rng
    extents = [extent for value in maker.inputs.values() if isinstance(value, np.ndarray) for extent in value.shape]
    if array.dtype.kind == "f":
        numbers = (
            np.array([*_REAL, *extents], array.dtype) if array.dtype.itemsize > 2 else np.array(_REAL[:3], array.dtype)
        )
    else:
        near = [n for extent in extents for n in (extent - 1, extent, extent + 1, -extent, -extent - 1)]
        low, high = (0, 1) if array.dtype.kind == "b" else limits(array.dtype)
        numbers = np.array([n for n in (*near, 0, -1, 1, *_FAR) if low <= n <= high], array.dtype)
    places = rng.integers(0, array.size, int(rng.choice([1, 1, 2, array.size])))
    changed.flat[places] = rng.choice(numbers, len(places))
    maker.inputs[name] = changed
    return f"{name}={' '.join(map(str, changed.ravel()[:6]))}"
