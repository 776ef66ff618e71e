"""What tests of libraries share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fusion.apart import asking_apart
from tests.kept_code import quick_kernels

_OF_CODE = ("conformance", "cpu")
"""Folders whose tests are of the instructions that our kernels for CPUs have; the others are of loops, of CUDA C and of
libraries, and have our kernels to be compared with."""


@pytest.fixture(autouse=True, scope="module")
def quick(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have LLVM optimise kernels where tests are of code alone, but for files with the mark `optimised`."""
    folder, *_ = request.path.relative_to(Path(__file__).parent).parts
    if folder in _OF_CODE or request.node.get_closest_marker("optimised") is not None:
        yield
        return
    with quick_kernels():
        yield


@pytest.fixture(scope="module")
def one_process_apart() -> Iterator[None]:
    """Ask libraries for all compilations of a file in one process, where each would start its own."""
    with asking_apart():
        yield
