"""Which targets' code tests can run here, and whether what it computes is right."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import tvm

from backends.cpu.codegen.generate import generate_module
from bench import gate, zoo
from bench.reference.evaluate import evaluate
from fusion import context
from fusion.errors import TargetError
from fusion.module.linker import link_objects
from fusion.module.settings import refusal, settings_of
from tests.kept_code import unoptimised

AVX2 = "llvm -mcpu=haswell"


def runs_here(target: str) -> bool:
    """Return whether this machine has every instruction that code for `target` may use."""
    try:
        return refusal(settings_of(context.resolve(target))) is None
    except TargetError:
        return False


def with_vectors_of_their_own(targets: Sequence[str]) -> tuple[str, ...]:
    """Return the first of those `targets` whose vectors have as many lanes and registers."""
    machines = {target: context.resolve(target).compiler.machine for target in targets}
    first: dict[tuple[int, int], str] = {}
    for target, machine in machines.items():
        first.setdefault((machine.vector_lanes, machine.vector_registers), target)
    return tuple(first.values())


def code_target(target: tvm.target.Target) -> tvm.target.Target:
    """Return what the code of kernels for `target` is made for: for another CPU than this, LLVM optimises nothing.

    What differs there are the loops; that LLVM makes the same of them in fewer instructions is seen where they are for
    this CPU.
    """
    here = str(context.resolve("llvm").target)  # as text: `==` of TVM's objects compares their addresses
    return target if str(target) == here else unoptimised(target)


def host_target(loops: str) -> tvm.target.Target:
    """Return what the code of kernels whose loops are for the target `loops` is made for to run here, whatever vectors
    this CPU has; as `code_target` does, LLVM optimises those for another CPU not at all."""
    host = context.resolve("llvm").target
    return host if loops == "llvm" else unoptimised(host)


def machine_code(kernels: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
    """Return what `generate_module` makes of kernels; a library where LLVM optimises nothing.

    Of code that TVM links in memory LLVM makes instructions as well as it can, whatever the target says, which takes
    twice as long as all that it does else.
    """
    made = generate_module(kernels, target)
    if str(target) != str(unoptimised(target)):
        return made
    with tempfile.TemporaryDirectory() as folder:
        code, library = Path(folder, "kernels.o"), Path(folder, "kernels.so")
        made.write_to_file(str(code))
        link_objects([code], library)
        return tvm.runtime.load_module(str(library))


def zoo_model(name: str) -> zoo.ZooModel:
    """Return a model of the zoo; skip the test where a package that it is made from is not installed."""
    if name not in zoo.available():
        pytest.skip(f"a package that {name} is made from is not installed")
    return zoo.make(name)


def judge(model: zoo.ZooModel, feeds: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> None:
    """Raise unless `outputs` of `model` pass the float64 gate."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model.path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    baseline = dict(zip(names, session.run(names, dict(feeds)), strict=True))
    verdict = gate.Verdict()
    gate.judge(verdict, outputs, baseline, evaluate(model.path, feeds))
    assert verdict.passed, verdict.reasons
