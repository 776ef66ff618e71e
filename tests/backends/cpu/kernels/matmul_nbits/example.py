"""A product with weights of 4 bits."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax, tirx

from fusion.frontends.narrow_weights import narrow_product
from tests.backends.cpu.kernels.examples import KernelExample


def narrow() -> tirx.PrimFunc:
    rng, builder = np.random.default_rng(0), relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((5, 768), "float32"))
    weights = rng.integers(0, 256, (100, 24, 16), dtype=np.uint8)
    with builder.function("main", [x]):
        made = narrow_product(builder, x, weights, np.ones((100, 24), "float32"), None, digits=3)
        builder.emit_func_output(builder.emit(made))
    module: tvm.IRModule = builder.get()
    return next(func for func in module.functions.values() if isinstance(func, tirx.PrimFunc))


EXAMPLES = (KernelExample(narrow, "5 rows of 768 by 100 columns of 4 bits in blocks of 32"),)
