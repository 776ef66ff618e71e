"""RewriteReshapes makes views of kernels that only copy, where Relax's reshape can say the shape."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax
from tvm.relax import op

from fusion.passes.rewrite_reshapes import RewriteReshapes
from tests.regressions.relax_models import Build, module

# name -> (build, shape of the input, whether the copy becomes a view)
CASES: dict[str, tuple[Build, tuple[int, ...], bool]] = {
    "flattened": (lambda builder, x: op.flatten(x), (2, 3), True),
    "turned": (lambda builder, x: op.permute_dims(x, [1, 0]), (2, 3), False),
    # A 0 in the shape of a reshape is the extent of its operand's axis there: (3, 0, 2) would be (3, 3, 2).
    "turned without elements": (lambda builder, x: op.permute_dims(x, [1, 2, 0]), (2, 3, 0), False),
}


@pytest.mark.parametrize("case", CASES)
def test_copies_become_views(case: str) -> None:
    build, shape, view = CASES[case]
    mod = module(lambda builder, x: op.exp(builder.emit(build(builder, x))), {"x": (shape, "float32")})
    kernels = relax.transform.LegalizeOps()(mod)
    made = RewriteReshapes()(kernels)
    assert ("reshape" in made["main"].script()) == view
    tvm.ir.assert_structural_equal(RewriteReshapes()(made), made)
