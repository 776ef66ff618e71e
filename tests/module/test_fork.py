"""A module that has run goes on running in a forked process."""

from __future__ import annotations

import os

import numpy as np
import pytest

import fusion
from tests.forked import answer_of_child
from tests.module import small_models


def wide() -> fusion.CompiledModule:
    """A module with kernels on two threads."""
    return fusion.compile(small_models.mlp(4000), threads=2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process")  # of its threads, none of which the test waits for
def test_a_forked_process_runs_it() -> None:
    module = wide()
    x = np.random.default_rng(0).standard_normal((4000, 8)).astype(np.float32)
    expected = module(x)[0]
    assert answer_of_child(lambda: all(np.array_equal(module(x)[0], expected) for _ in range(3)))
    np.testing.assert_array_equal(module(x)[0], expected)
