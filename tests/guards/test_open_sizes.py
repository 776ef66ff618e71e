"""A check of values whose number, or whose bounds, only a call knows is one kernel: the static one at every size."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm_ffi.structural import structural_equal

import fusion.module.host_functions
from backends.cpu.schedule import schedule
from backends.tensorir.symbols import bind, symbols_of
from fusion import context
from fusion.carried_errors import take_raised
from fusion.errors import ExecutionError
from fusion.extents import Sizes
from fusion.guards.in_numpy import first_failure, kept
from fusion.guards.kernel import guard_func
from fusion.guards.kinds import Guard, index_guard, length_guard, operand_guard, size_guard
from fusion.symbolic.fit import Fit
from fusion.tensors import as_tensor
from tests.symbolic.unified import unified

assert fusion.module.host_functions, "kernels call what it registers"
PROBES = ({"b": 3, "l": 127}, {"b": 3, "l": 131}, {"b": 5, "l": 131})
GUARDS: dict[str, Callable[[Sizes], Guard]] = {
    "index of a table": lambda sizes: index_guard("a node", [0], (100,)),
    "index of an open axis": lambda sizes: index_guard("a node", [1], (7, sizes["l"])),
    "index of all of an open table": lambda sizes: operand_guard("position", "a node", [], (sizes["b"], sizes["l"])),
    "length": lambda sizes: length_guard("a node", 0, sizes["l"]),
    "size": lambda sizes: size_guard("a node", 1, sizes["l"]),
    "divisor": lambda sizes: operand_guard("divisor", "a node", [], ()),
}


@pytest.mark.parametrize("name", GUARDS)
def test_it_says_what_static_ones_say(name: str) -> None:
    forms = [guard_func(GUARDS[name](sizes), (sizes["b"], sizes["l"]), "int64", "int64") for sizes in PROBES]
    func = unified(forms, Fit(PROBES))
    assert all(structural_equal(bind(func, sizes), form) for sizes, form in zip(PROBES, forms, strict=True))
    assert all(dim.same_as(var) for dim, var in zip(func.params[0].ty.shape, symbols_of(func), strict=True))
    compiler = context.resolve(threads=1).compiler
    made = schedule(func, compiler.machine, threads=1)
    assert made.template == "written"
    kernel = compiler.generate_module(tvm.IRModule({"k": made.func.with_attr("global_symbol", "k")}))["k"]
    for b, length in ((0, 3), (2, 0), (1, 1), (3, 127), (4, 2)):
        guard = GUARDS[name]({"b": b, "l": length})
        good = np.full((b, length), length if name == "size" else 0, "int64") + (name == "divisor")
        checked = np.empty_like(good)
        kernel(as_tensor(good), as_tensor(checked))
        np.testing.assert_array_equal(checked, kept(good, guard))
        for value in (-1000, -1, 0, length, 1000) if good.size else ():
            values = good.copy()
            values[-1, -1] = value
            wanted = first_failure(values, guard)
            if wanted is None:
                kernel(as_tensor(values), as_tensor(checked))
                np.testing.assert_array_equal(checked, kept(values, guard))
                continue
            with pytest.raises(RuntimeError):
                kernel(as_tensor(values), as_tensor(checked))
            assert str(take_raised()) == str(wanted)


def test_a_check_of_many_values_is_shared_at_every_size() -> None:
    guard = index_guard("a node", [0], (100,))
    func = unified([guard_func(guard, (*sizes.values(), 512), "int64", "int64") for sizes in PROBES], Fit(PROBES))
    compiler = context.resolve(threads=2).compiler
    kernel = compiler.generate_module(
        tvm.IRModule({"k": schedule(func, compiler.machine, 2).func.with_attr("global_symbol", "k")})
    )["k"]
    for b, length in ((0, 1), (1, 1), (2, 131)):
        values = np.random.default_rng(0).integers(-100, 100, (b, length, 512))
        checked = np.empty_like(values)
        kernel(as_tensor(values), as_tensor(checked))
        np.testing.assert_array_equal(checked, kept(values, guard))
        if values.size:
            values[-1, -1, -1] = 100
            with pytest.raises(RuntimeError):
                kernel(as_tensor(values), as_tensor(checked))
            assert str(take_raised()) == str(first_failure(values, guard))


def test_an_error_names_the_bounds_of_the_call() -> None:
    error = first_failure(np.array([9]), index_guard("a node", [0], (4,)))
    assert isinstance(error, ExecutionError)
    assert error.why == "axis 0 has 4 entries: index 9 is not in -4..3"
