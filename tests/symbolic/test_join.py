"""Kernels of a module with symbols are taken while others are joined, as long as no number is in doubt."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tvm_ffi
from tvm import relax, tirx

from fusion.symbolic import join
from fusion.symbolic.fit import Fit
from fusion.symbolic.join import Joined, Probe
from fusion.symbolic.open_dims import OpenDims
from fusion.symbolic.unify import Unified

_DIMS = OpenDims(("x",), (("n", 4),))
_SIZES = ({"n": 5}, {"n": 7})


def _probe(rows: int) -> Probe:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((rows, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit(relax.op.exp(x))
            result = builder.emit_output(relax.op.add(made, x))
        builder.emit_func_output(result)
    return Probe(relax.transform.LegalizeOps()(builder.get()))


def _joined(fit: Fit, take: Callable[[str, tirx.PrimFunc], None]) -> Joined:
    return Joined.of([_probe(sizes["n"]) for sizes in _SIZES], fit, _DIMS, take)


def test_each_kernel_is_taken_once_as_the_module_has_it() -> None:
    taken = dict[str, tirx.PrimFunc]()
    mod = _joined(Fit(_SIZES), taken.setdefault).module()
    assert {*taken, "main"} == {symbol.name_hint for symbol in mod.functions}
    assert all(mod[name].same_as(kernel) for name, kernel in taken.items())


def test_the_first_is_taken_before_the_last_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    told, unify = [], join.unify

    def telling(*arguments: object) -> Unified:
        told.append("joined")
        return unify(*arguments)

    monkeypatch.setattr(join, "unify", telling)
    _joined(Fit(_SIZES), lambda name, kernel: told.append("taken"))
    assert told == ["joined", "joined", "taken", "joined", "taken"]  # the first of them `main`


def test_none_is_taken_once_a_number_is_in_doubt() -> None:
    taken, fit = list[str](), Fit(_SIZES)

    def take(name: str, kernel: tirx.PrimFunc) -> None:
        taken.append(name)
        fit.has_doubts = True

    mod = _joined(fit, take).module()
    assert len(taken) == 1
    assert tvm_ffi.structural_equal(mod, _joined(Fit(_SIZES), lambda name, kernel: None).module())
