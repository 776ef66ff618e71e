"""Node tests once more with every input but the first constant, which is how exporters write axes, sizes and scales.

ONNX's node tests give them at run time, so that the converters' constant paths would go untested.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import onnx
import pytest

from fusion.frontends import import_model
from tests.frontends.run import run
from tests.onnx_nodes.cases import load_cases
from tests.onnx_nodes.compare import mismatch

_FAMILIES = re.compile(
    r"test_(resize|upsample|(constant|edge|reflect|wrap)_pad|slice|cumsum|cumprod|split_(equal|variable)|tile|expand_dim"
    r"|reshape|squeeze|unsqueeze|top_k|onehot|clip|reduce_(sum|max|log_sum_exp|l2)_[^e]|trilu|tril|triu|range_float|pow|gather)"
)
# float8, int4 and strings are no business of these converters; a random or dtype-only variant adds nothing. Where ONNX
# Runtime aligns the corners of what is scaled down, it counts whole results, and the standard parts of one too.
_LEFT_OUT = re.compile(r"expanded|bfloat16|uint64|_empty|FLOAT|INT|downsample_scales_(linear|cubic)_align_corners")


@lru_cache
def _cases() -> dict[str, Any]:
    return {n: c for n, c in load_cases().items() if _FAMILIES.match(n) and not _LEFT_OUT.search(n)}


@pytest.mark.filterwarnings("ignore")
def test_constant_paths() -> None:
    wrong = {name: problem for name, case in _cases().items() if (problem := _problem(case))}
    assert len(_cases()) > 150
    assert not wrong, "\n".join(f"{name}: {problem}" for name, problem in wrong.items())


def _problem(case: Any) -> str:
    (inputs, expected), *_ = case.data_sets
    imported = import_model(_bake(case.model, inputs))
    if imported.fallbacks:
        return f"falls back: {imported.fallbacks[0].reason}"
    return mismatch(run(imported, inputs[0]), expected, case.rtol, case.atol)


def _bake(model: onnx.ModelProto, inputs: list[Any]) -> onnx.ModelProto:
    baked = onnx.ModelProto()
    baked.CopyFrom(model)
    names = [value.name for value in model.graph.input]
    weights = [onnx.numpy_helper.from_array(a, n) for n, a in zip(names[1:], inputs[1:], strict=True)]
    baked.graph.initializer.extend(weights)
    del baked.graph.input[1:]
    return baked
