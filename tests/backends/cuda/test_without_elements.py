"""Tensors without elements on a device: what nobody has to start, and what a reduction of nothing is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from tvm import te, tirx
from tvm.s_tir.stmt import SBlock

import fusion
from backends.cuda.without_elements import starts_nothing, without_elements
from backends.tensorir.stages import read_stages
from fusion.structural import find
from tests.backends.cuda.emulator.emulate import WHY_NOT
from tests.backends.cuda.planned import run_planned

TARGET = "cuda -arch=sm_80"


class Parts(nn.Module):
    """Each result is another way to meet them; in places a kernel has elements beside them."""

    def forward(self, x: Tensor, none: Tensor, places: Tensor) -> tuple[Tensor, ...]:
        return (
            none + 1,
            none.sum(0) + x.sum(0),
            none.prod(0).softmax(-1),
            (x[:, :0] @ none + x).relu(),
            none @ x.mT,
            (x[:, :0] * 2).softmax(-1),
            torch.cat([none, x + 1, none * 2]),
            x[places],
            none.topk(2, 1)[0],
        )


@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
@pytest.mark.usefixtures("assembler")
def test_results_are_those_of_torch() -> None:
    given = (torch.arange(12.0).reshape(3, 4) / 8, torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64))
    module = fusion.compile((Parts().eval(), given), target=TARGET)
    expected = Parts()(*given)
    for found, wanted in zip(run_planned(module, *(each.numpy() for each in given)), expected, strict=True):
        np.testing.assert_allclose(found.reshape(wanted.shape), wanted.numpy(), rtol=1e-6, atol=1e-6)
    (form,) = module.specializations
    assert {kernel.tile for kernel in form.kernels.values() if kernel.template == "empty"} == {"no launch"}
    assert " empty " in module.explain()


def _sums(rows: int, columns: int) -> tirx.PrimFunc:
    x = te.placeholder((rows, columns), "float32", "x")
    k = te.reduce_axis((0, rows), "k")
    sums = te.compute((columns,), lambda j: te.sum(x[k, j], axis=k), "sums")
    twice = te.compute((columns,), lambda j: sums[j] * tirx.const(2, "float32"), "twice")
    return te.create_prim_func([x, twice, te.compute((rows, columns), lambda i, j: x[i, j], "copy")])


def test_blocks_without_elements_go_and_sums_of_nothing_are_what_they_begin_with() -> None:
    made = without_elements(_sums(0, 4))
    first, second = read_stages(made)
    assert (first.combine, float(first.value)) == (None, 0.0)
    assert str(second.buffer.name) == "twice"
    assert without_elements(made).same_as(made)


def test_what_nobody_reads_goes_too() -> None:
    x = te.placeholder((3, 0), "float32", "x")
    k = te.reduce_axis((0, 0), "k")
    sums = te.compute((3,), lambda i: te.sum(x[i, k], axis=k), "sums")
    func = te.create_prim_func([x, te.compute((3, 0), lambda i, j: x[i, j] / sums[i], "part")])
    assert len(find(func.body, SBlock)) == 3
    assert starts_nothing(without_elements(func))


def test_kernels_with_elements_are_as_they_are() -> None:
    func = _sums(3, 4)
    assert without_elements(func).same_as(func)
    assert not starts_nothing(func)
