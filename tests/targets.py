"""Which targets' code tests can run here, and whether what it computes is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnxruntime
import pytest
import tvm

from bench import gate, zoo
from bench.reference.evaluate import evaluate
from fusion import context
from fusion.errors import TargetError
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
