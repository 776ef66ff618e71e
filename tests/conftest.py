"""What holds in every test."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusion.module.program import Program
from fusion.module.stand_in import StandIn
from tests import internal_errors
from tests.kept_code import quick_kernels, sharing_code

# No test shall see what another has compiled; those of the cache have folders of their own.
os.environ["FUSION_CACHE_SIZE"] = "0"

_NOT_OF_CODE = ("backends", "bad_input", "cache", "cli", "frontends", "module", "report", "rewrites", "symbolic")
"""Folders whose tests ask what is computed and what users are told, not by which instructions or in what time."""

_OF_CODE = (Path("backends/conformance"), Path("backends/cpu"))
"""Folders in these of the instructions that our kernels for CPUs have: tests of other backends are of loops, of CUDA C
and of libraries, and have our kernels to be compared with."""


def pytest_collection_finish() -> None:
    """Keep what imports and collecting have made out of the garbage collector's rounds: it is never garbage, and to go
    through it again and again took 4% of the CPU time of tests that compile."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def kept_code() -> Iterator[None]:
    """Have the code of equal functions made once: see `tests.kept_code`."""
    with sharing_code():
        yield


@pytest.fixture(autouse=True, scope="module")
def quick(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have LLVM optimise no kernels where tests are not of code, but for files with the mark `optimised`, and in files
    with the mark `unoptimised`.

    To optimise a small kernel takes as long as all else that is done for it. Kernels, whole models and what once was
    wrong are compiled as for users, but for files of what is decided before there is code.
    """
    path = request.path.relative_to(Path(__file__).parent)
    is_of_code = path.parts[0] not in _NOT_OF_CODE or not {*path.parents}.isdisjoint(_OF_CODE)
    is_quick = not is_of_code and request.node.get_closest_marker("optimised") is None
    if not is_quick and request.node.get_closest_marker("unoptimised") is None:
        yield
        return
    with quick_kernels():
        yield


@pytest.fixture(autouse=True)
def no_internal_errors(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test in which the compiler met a defect of its own and chose another form: its results would be right.

    Tests of just that have the mark `internal_errors`.
    """
    with internal_errors.collect() as sentences:
        yield
    if request.node.get_closest_marker("internal_errors") is None:
        assert not sentences


@pytest.fixture(autouse=True, scope="session")
def stand_ins() -> Iterator[list[object]]:
    """What was opened to answer for forms that are being made, in fixtures of any scope too."""
    found, open_one = list[object](), StandIn.open

    def note(stand_in: StandIn) -> Program | None:
        program = open_one(stand_in)
        if program is not None:  # whether it answers is a race with the form
            found.append(stand_in)
        return program

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StandIn, "open", note)
        yield found


@pytest.fixture(autouse=True)
def forms_answer(request: pytest.FixtureRequest, stand_ins: list[object]) -> Iterator[None]:
    """Fail a test in which ONNX Runtime was to answer for a form that was being made: it would test ONNX Runtime.

    Tests of just that have the mark `stand_in`.
    """
    yield
    meanwhile = bool(stand_ins)
    stand_ins.clear()
    if request.node.get_closest_marker("stand_in") is None:
        assert not meanwhile, "give wait=True"
