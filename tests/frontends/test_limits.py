"""Attributes, constants, operands and shapes at and past their limits: ONNX Runtime says what is valid."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest
from onnx import NodeProto

from fusion import errors
from fusion.errors import InvalidModelError, ShapeError
from fusion.frontends import import_model
from tests.frontends.limits.compare import Case, disagreements
from tests.frontends.limits.measure import Engine
from tests.frontends.limits.mutate import mutations
from tests.frontends.limits.seeds import model_of, seeds
from tests.frontends.models import make, node

SEED = 20261122
# Of each valid model, each of another thing; `python -m tests.frontends.limits` asks for all, some hundred each.
CASES = 3


@pytest.fixture(scope="module")
def engines() -> Iterator[tuple[Engine, Engine]]:
    both = Engine("onnxruntime"), Engine("fusion")
    yield both
    for engine in both:
        engine.close()


def thing(case: Case) -> str:
    """Return what of a node a case changes: it counts once, however many values are tried of it."""
    what, _ = case
    return re.split(r" ?= ?| is ", what)[0]


def test_what_onnxruntime_refuses(engines: tuple[Engine, Engine]) -> None:
    """A sample of all changes of one thing in a node."""
    onnxruntime, fusion = engines
    choice = random.Random(SEED)
    cases: list[Case] = []
    for seed in seeds():
        if onnxruntime.ask(model_of(seed).SerializeToString(), seed.values).verdict == "runs":
            changed = defaultdict[str, list[Case]](list)
            for case in mutations(seed):
                changed[thing(case)].append(case)
            things = choice.sample(sorted(changed), min(CASES, len(changed)))
            cases += [choice.choice(changed[name]) for name in things]
    found = list(islice(disagreements(cases, onnxruntime, fusion), 20))
    assert not found, f"seed {SEED}:\n" + "\n".join(found)
    assert len(cases) > 600


@pytest.mark.parametrize(
    ("made", "error", "why"),
    [
        (node("Softmax", ["x"], ["y"], axis=3), ShapeError, "axis is 3, and must be from -3 to 2 for a"),
        (node("Transpose", ["x"], ["y"], perm=[-1, 0, 1]), ShapeError, "perm is [-1, 0, 1], and must be a permutation"),
        (node("Concat", ["", "x"], ["y"], axis=0), InvalidModelError, "input 0 (inputs) is missing"),
        (node("LpPool", ["x"], ["y"], kernel_shape=[2], dilations=[-1]), ShapeError, "dilations is [-1], and must be"),
        (node("Relu", ["x"], ["y"], alpha=1.0), InvalidModelError, "alpha"),
        (node("ReduceSum", ["x", "axes"], ["y"]), ShapeError, "axes is 5, and must be from -3 to 2"),
    ],
    ids=lambda value: value.op_type if isinstance(value, NodeProto) else "",
)
def test_errors_say_what_is_allowed(made: NodeProto, error: type[errors.FusionError], why: str) -> None:
    with pytest.raises(error, match=made.op_type) as caught:
        import_model(make([made], {"x": [2, 3, 4]}, ["y"], {"axes": np.array([5])}))
    assert why in caught.value.why
    assert made.op_type in caught.value.where
