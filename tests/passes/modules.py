"""Make Relax modules, run them through TVM's own build, and hold a pass to what every pass promises."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from backends.cpu.lowerings import lowerings
from backends.tensorir.lower_anchors import LowerAnchors
from fusion.bindings import Bindings, call_name
from fusion.module.linker import link_objects

Build = Callable[..., relax.Expr]
Pass = Callable[[tvm.IRModule], tvm.IRModule]

UNOPTIMISED = tvm.target.Target({"kind": "llvm", "opt-level": 0})
"""For what TVM compiles alone, to be compared with; LLVM's optimisations take one and a half times as long again."""


def module(build: Build, arrays: Sequence[np.ndarray]) -> tvm.IRModule:
    """Return a module whose `main` is `build(builder, *inputs)`."""
    inputs = [relax.Var(f"x{i}", relax.TensorType(a.shape, str(a.dtype))) for i, a in enumerate(arrays)]
    builder = relax.BlockBuilder()
    with builder.function("main", inputs):
        with builder.dataflow():
            made = build(builder, *inputs)
            result = builder.emit_output(made if isinstance(made, relax.Var) else builder.normalize(made))
        builder.emit_func_output(result)
    return canonical(builder.get())


def canonical(mod: tvm.IRModule) -> tvm.IRModule:
    """Return `mod` without variables that only rename others or that nobody reads."""
    return relax.transform.DeadCodeElimination(["main"])(relax.transform.CanonicalizeBindings()(mod))


def evaluate(mod: tvm.IRModule, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the outputs of `main`."""
    return execute(build_alone(_lowered(mod)), arrays)


def evaluate_both(
    one: tvm.IRModule, other: tvm.IRModule, arrays: Sequence[np.ndarray]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the outputs of `main` of two modules, which are compiled together: most of their kernels are the same."""
    one, other = _lowered(one), _lowered(other)
    if len(other.functions) > 1:
        return evaluate(one, arrays), evaluate(other, arrays)
    both = tvm.IRModule({**one.functions}, attrs=one.attrs)
    both["other"] = other["main"].with_attr("global_symbol", "other")
    executable = build_alone(both)
    return execute(executable, arrays), execute(executable, arrays, "other")


def _lowered(mod: tvm.IRModule) -> tvm.IRModule:
    """Return `mod` for TVM's own pipeline, but for channels-last convolutions: it has none with OIHW weights."""
    is_last = any(getattr(value.attrs, "data_layout", "") == "NHWC" for _, value in calls(mod))
    return LowerAnchors(lowerings(16))(mod) if is_last else mod


def build_alone(mod: tvm.IRModule) -> relax.VMExecutable:
    """Return what TVM's own pipeline makes of `mod`, to be compared with.

    Its code is a library: of code that TVM links in memory LLVM makes instructions as well as it can, whatever the
    target says, which takes longer than all the rest.
    """
    executable = relax.build(mod, UNOPTIMISED)
    codes = list(executable.mod.imports)
    if not all(code.kind == "llvm" for code in codes):
        return executable  # without a kernel it has an empty module of C
    executable.mod.clear_imports()
    with tempfile.TemporaryDirectory() as folder:
        for index, code in enumerate(codes):
            made, library = Path(folder, f"{index}.o"), Path(folder, f"{index}.so")
            code.write_to_file(str(made))
            link_objects([made], library)
            executable.mod.import_module(tvm.runtime.load_module(str(library)))
    return executable


def execute(
    executable: relax.VMExecutable, arrays: Sequence[np.ndarray], function: str = "main"
) -> list[np.ndarray]:
    """Return the outputs of a compiled function."""
    machine = relax.VirtualMachine(executable, tvm.cpu())
    # ascontiguousarray alone gives a scalar one dimension.
    tensors = [tvm.runtime.tensor(np.ascontiguousarray(array).reshape(array.shape)) for array in arrays]
    result = machine[function](*tensors)
    return [tensor.numpy() for tensor in (result if isinstance(result, tvm_ffi.Array) else [result])]


def calls(mod: tvm.IRModule) -> list[tuple[str, relax.Call]]:
    """Return the operators that `main` calls, in order, by name."""
    return [(call_name(value), value) for _, value in Bindings.of(mod["main"]).values.items() if call_name(value)]


def names(mod: tvm.IRModule) -> list[str]:
    return [name for name, _ in calls(mod)]


def apply(rewrite: Pass, build: Build, arrays: Sequence[np.ndarray], settles: bool = True) -> tvm.IRModule:
    """Return what the pass makes of a module; asserts that its results agree and its input is untouched.

    With `settles`, the second application changes nothing.
    """
    before, same = module(build, arrays), module(build, arrays)
    after = canonical(rewrite(before))
    assert tvm_ffi.structural_equal(before, same), "the pass changed its input"
    relax.analysis.well_formed(after)
    again = canonical(rewrite(after))
    assert not settles or tvm_ffi.structural_equal(again, after), f"twice is not the same as once:\n{after}\n{again}"
    for got, want in zip(*evaluate_both(after, before, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * max(1.0, float(np.abs(want).max(initial=0))))
    return after


def unchanged(rewrite: Pass, build: Build, arrays: Sequence[np.ndarray]) -> None:
    """Assert that the pass leaves a module alone."""
    before = module(build, arrays)
    after = canonical(rewrite(before))
    assert tvm_ffi.structural_equal(after, before), after


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Return float32 numbers from a standard normal distribution."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype("float32")


def weight(*shape: int, seed: int = 0) -> relax.Constant:
    """Return a constant of random numbers."""
    return relax.const(normal(*shape, seed=seed))
