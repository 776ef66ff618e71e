"""Attributes, constants, operands and shapes at and past their limits: ONNX Runtime says what is valid."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

import pytest

from tests.frontends.limits.compare import Case, disagreements
from tests.frontends.limits.measure import Engine
from tests.frontends.limits.mutate import mutations
from tests.frontends.limits.seeds import model_of, seeds

SEED = 20261122
# Of each valid model; `python -m tests.frontends.limits` asks for all, some hundred each.
CASES = 4


@pytest.fixture(scope="module")
def engines() -> Iterator[tuple[Engine, Engine]]:
    both = Engine("onnxruntime"), Engine("fusion")
    yield both
    for engine in both:
        engine.close()


def test_what_onnxruntime_refuses(engines: tuple[Engine, Engine]) -> None:
    """A sample of all changes of one thing in a node."""
    onnxruntime, fusion = engines
    choice = random.Random(SEED)
    cases: list[Case] = []
    for seed in seeds():
        if onnxruntime.ask(model_of(seed).SerializeToString(), seed.values).verdict == "runs":
            changed = list(mutations(seed))
            cases += choice.sample(changed, min(CASES, len(changed)))
    found = list(islice(disagreements(cases, onnxruntime, fusion), 20))
    assert not found, f"seed {SEED}:\n" + "\n".join(found)
    assert len(cases) > 800
