"""Models that are one at the bounds of all sizes and at those that passes see, and another one between."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import fusion

_HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
MODELS = {
    # What is left of a division of rows by 4 is 1 for 5 and 7 rows, and where they end.
    "left of a division": """(float[length,8] x) => (float[n] y) <int64[1] four={4}> {
        size = Shape<start=0,end=1>(x)
        quarter = Div(size, four)
        left = Mod(quarter, four)
        sums = ReduceSum<keepdims=0>(x, axis)
        y = Tile(sums, left)
    }""",
    # The result has two rows at all sizes.
    "where a slice begins": """(float[batch,length,8] x) => (float[b,n,w] y) <int64[1] two={2}, int64[1] five={5}> {
        size = Shape<start=0,end=1>(x)
        begin = Mod(size, five)
        end = Add(begin, two)
        y = Slice(x, begin, end, axis)
    }""",
    "what numbers are cut off at": """(float[batch,length,8] x) => (float[b,n,w] y) <int64[1] five={5}> {
        size = Shape<start=0,end=1>(x)
        least = Min(size, five)
        scalar = Squeeze(least)
        most = Cast<to=1>(scalar)
        y = Clip(x, , most)
    }""",
    "whether two sizes are one": """(float[batch,length,8] x) => (float[b,n,w] y) <float one={1}, float two={2}> {
        batch = Shape<start=0,end=1>(x)
        length = Shape<start=1,end=2>(x)
        same = Equal(batch, length)
        added = Where(same, one, two)
        y = Add(x, added)
    }""",
    # Of batches of 2 and of 3 a half is 1.
    "half of a batch": """(float[batch,length,8] x) => (float[b,n,w] y, float[c,n,w] z) <int64[1] two={2}> {
        size = Shape<start=0,end=1>(x)
        half = Div(size, two)
        rest = Sub(size, half)
        parts = Concat<axis=0>(half, rest)
        y, z = Split<axis=0>(x, parts)
    }""",
    # The rows of q are 2 and 3 where half of b is.
    "half of another batch": """(float[q,8] v, float[batch,length,8] x) => (float[b,n,w] y, float[q,8] z)
    <int64[1] one={1}, int64[1] two={2}> {
        size = Shape<start=0,end=1>(x)
        y = Slice(x, one, size, two, two)
        z = Neg(v)
    }""",
}


@pytest.mark.filterwarnings("ignore::fusion.errors.ManyFormsWarning")  # some have no form for all sizes
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("first", [0, 3])
def test_what_follows_from_sizes_otherwise_than_as_it_begins(name: str, first: int) -> None:
    text = MODELS[name]
    if "axis)" in text:
        text = text.replace("<int64[1] ", "<int64[1] axis={1}, int64[1] ", 1)
    model = parser.parse_model(f"{_HEAD} model {text}")
    module = fusion.compile(model, wait=True, cache=False, threads=1)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    rng = np.random.default_rng(0)
    sizes = [(2, 5), (3, 17), (7, 6), (13, 13), (6, 6), (5, 8), (11, 40), (8, 30), (1, 9)]
    for batch, length in (sizes[first], *sizes):
        dims = {"batch": batch, "length": length, "q": 3}
        shapes = {value.name: value.type.tensor_type.shape.dim for value in model.graph.input}
        given = {
            name: 6 * rng.random([dim.dim_value or dims[dim.dim_param] for dim in shape], np.float32)
            for name, shape in shapes.items()
        }
        found = module.run(given)
        for output, wanted in zip(session.get_outputs(), session.run(None, given), strict=True):
            np.testing.assert_allclose(found[output.name], wanted, rtol=1e-5, err_msg=f"{batch} x {length}")
