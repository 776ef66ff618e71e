"""Compiled once for all tests of this folder."""

from __future__ import annotations

import pytest

import fusion
from tests.module import small_models


@pytest.fixture(scope="package")
def mlp() -> fusion.CompiledModule:
    return fusion.compile(small_models.mlp())


@pytest.fixture(scope="package")
def two_inputs() -> fusion.CompiledModule:
    return fusion.compile(small_models.two_inputs())
