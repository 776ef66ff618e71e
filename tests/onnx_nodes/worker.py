"""Runs node tests in a process of its own: a name per line on stdin, one JSON outcome per line on stdout.

A crash of native code kills this process and nothing else; `suite.py` notices and starts another.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from tests.onnx_nodes.cases import load_cases
from tests.onnx_nodes.compare import mismatch

Runner = Callable[[Any], tuple[str, list[str]]]
_OPTIMISED = 24
"""One of so many tests, by name, has its kernels optimised as for users: with those of all, and of what calls them, a
test took 0.24 s of CPU time and not 0.15."""


def main(engine: str) -> None:
    """Say which tests there are, and which of them are of plain tensors; then serve names from stdin until it closes.

    `engine` is "fusion", "frontend" (ours over TVM's own pipeline) or "plain_tvm".
    """
    warnings.simplefilter("ignore")
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries that print must not corrupt the replies
    runner = {"fusion": _run_fusion, "frontend": _run_frontend, "plain_tvm": _run_plain_tvm}[engine]
    cases = load_cases()
    plain = [name for name, case in cases.items() if _on_plain_tensors(case.model.graph)]
    replies.write(json.dumps({"ready": sorted(cases), "plain": plain}) + "\n")
    optimised = set(sorted(cases)[::_OPTIMISED]) if engine == "fusion" else set(cases)
    with _sharing_code() if engine == "fusion" else nullcontext():
        for line in sys.stdin:
            name = line.strip()
            with nullcontext() if name in optimised else _quick_kernels():
                outcome = _outcome(runner, cases[name])
            replies.write(json.dumps({"name": name, **outcome}) + "\n")


def _on_plain_tensors(graph: Any) -> bool:
    from onnx import TensorProto

    values = [*graph.input, *graph.output]
    return all(
        value.type.HasField("tensor_type") and value.type.tensor_type.elem_type != TensorProto.STRING
        for value in values
    )


@contextmanager
def _sharing_code() -> Iterator[None]:
    """As in `tests/conftest.py`: many operators have several tests with the same kernels."""
    import fusion

    fusion.compile  # noqa: B018 -- before TVM, which alone imports PyTorch
    from tests.kept_code import sharing_code

    gc.freeze()  # what is imported, and all tests, are none of the collector's: 3% of the CPU time
    with sharing_code():
        yield


def _quick_kernels() -> AbstractContextManager[None]:
    from tests.kept_code import quick_kernels

    return quick_kernels()


def _outcome(runner: Runner, case: Any) -> dict[str, Any]:
    try:
        outcome, reasons = runner(case)
        return {"outcome": outcome, "reason": "; ".join(reasons)[:300]}
    except Exception as error:  # every failure of any layer is an outcome of the test, not of the suite
        code = getattr(error, "code", type(error).__name__)
        detail = getattr(error, "what", None) or (str(error).strip().splitlines() or [""])[-1]
        return {"outcome": "unsupported", "reason": f"{code}: {detail}"[:300]}


def _run_fusion(case: Any) -> tuple[str, list[str]]:
    import fusion

    module = fusion.compile(case.model, threads=1, wait=True)
    names = [value.name for value in case.model.graph.input]
    problem = _problem(case, lambda arrays: list(module.run(dict(zip(names, arrays, strict=True))).values()))
    form = module.specializations[-1] if module.specializations else None
    return _verdict(problem, form.fallbacks if form is not None else ())


def _run_frontend(case: Any) -> tuple[str, list[str]]:
    import tvm
    from tvm import relax

    from backends.onnxruntime import fallback
    from fusion.frontends import import_model

    imported = import_model(case.model)
    subgraphs = [fallback.register(key, data, threads=1) for key, data in imported.subgraphs.items()]
    if imported.mod is None:
        problem = _problem(case, lambda arrays: fallback.run(subgraphs[0], arrays))
    else:
        machine = relax.VirtualMachine(tvm.compile(imported.mod, target="llvm"), tvm.cpu())
        problem = _problem(case, lambda arrays: _call(machine, arrays))
    return _verdict(problem, imported.fallbacks)


def _problem(case: Any, run: Callable[[list[Any]], list[Any]]) -> str:
    found = (mismatch(run(inputs), expected, case.rtol, case.atol) for inputs, expected in case.data_sets)
    return next((problem for problem in found if problem), "")


def _verdict(problem: str, fallbacks: Iterable[Any]) -> tuple[str, list[str]]:
    if problem:
        return "unsupported", [f"wrong: {problem}"]
    reasons = [f"{node.op}: {node.reason}" for node in fallbacks]
    return ("fallback" if reasons else "native"), reasons


def _call(machine: Any, arrays: Iterable[Any]) -> list[np.ndarray]:
    import tvm

    result = machine["main"](*(tvm.runtime.tensor(np.asarray(array)) for array in arrays))
    fields = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
    return [field.numpy() for field in fields]


def _run_plain_tvm(case: Any) -> tuple[str, list[str]]:
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    executable = tvm.compile(from_onnx(case.model), target="llvm")
    machine = relax.VirtualMachine(executable, tvm.cpu())
    return _verdict(_problem(case, lambda arrays: _call(machine, arrays)), ())


if __name__ == "__main__":
    main(sys.argv[1])
