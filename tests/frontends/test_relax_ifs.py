"""Ifs of a Relax module that the user brings: compiled, they compute what their branches say."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm.script import relax as R

import fusion
from fusion.errors import UnsupportedOperatorError
from fusion.frontends import import_model

X = np.array([[1, -2, 3], [4, 0.5, -6]], np.float32)


@tvm.script.ir_module
class Nested:
    @R.function
    def main(
        c: R.Tensor((), "bool"), d: R.Tensor((1,), "bool"), x: R.Tensor((2, 3), "float32")
    ) -> R.Tensor((2, 3), "float32"):
        with R.dataflow():
            a = R.exp(x)
            R.output(a)
        if c:
            b = R.add(a, x)
            if d:  # noqa: SIM108 TVMScript has no ternary
                e = R.multiply(b, x)
            else:
                e = R.subtract(b, a)
            y = R.negative(e)
        else:
            y = x
        return R.tanh(y)


@tvm.script.ir_module
class Several:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((2, 3), "float32")) -> R.Tuple(
        R.Tensor((2, 3), "float32"), R.Tensor((2, 3), "float32")
    ):
        if c:  # noqa: SIM108
            z = (R.exp(x), x)
        else:
            z = (x, R.negative(x))
        return z


@tvm.script.ir_module
class Open:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((2, 3), "bool")) -> R.Tensor(dtype="int64", ndim=2):
        if c:  # noqa: SIM108
            y = R.nonzero(x)
        else:
            y = R.nonzero(R.logical_not(x))
        return y


@pytest.mark.parametrize("c", [True, False])
@pytest.mark.parametrize("d", [True, False])
def test_an_if_in_an_if(c: bool, d: bool) -> None:
    (found,) = fusion.compile(Nested)(np.array(c), np.array([d]), X)
    both = np.exp(X) + X
    wanted = np.tanh(-(both * X if d else both - np.exp(X)) if c else X)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_each_branch_is_a_module_of_its_own() -> None:
    assert len(import_model(Nested).branches) == 4


@pytest.mark.parametrize("c", [True, False])
def test_an_if_of_several_tensors(c: bool) -> None:
    found = fusion.compile(Several)(np.array(c), X)
    for have, want in zip(found, (np.exp(X), X) if c else (X, -X), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-6)


def test_an_if_without_a_static_shape_is_refused() -> None:
    with pytest.raises(UnsupportedOperatorError, match="no static shape"):
        import_model(Open)
