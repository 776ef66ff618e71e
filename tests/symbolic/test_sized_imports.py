"""How often a model is imported to find for which sizes it is one and the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
import pytest

from fusion.frontends import importer, read_signature
from fusion.frontends.imported import ImportedModel
from fusion.symbolic.open_dims import OpenDims
from fusion.symbolic.sized_imports import SizedImports
from tests.symbolic.picture_models import corners, neck


@pytest.mark.parametrize(("model", "most"), [(neck(), 20), (corners(), 11)], ids=["neck", "corners"])
def test_a_model_is_imported_at_few_sizes_and_at_none_twice(model: onnx.ModelProto, most: int) -> None:
    read, asked = importer(model, strict=False), list[tuple[int, ...]]()

    def count(shapes: Mapping[str, Sequence[int]]) -> ImportedModel:
        asked.append(tuple(shapes["x"]))
        return read(shapes)

    dims = OpenDims.of(read_signature(model)[0])
    assert dims is not None
    SizedImports(count, dims, {"batch": 1, "height": 96, "width": 128}).find()
    assert len(asked) == len(set(asked)) <= most
