"""What holds in every test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests import internal_errors

# No test shall see what another has compiled; those of the cache have folders of their own.
os.environ["FUSION_CACHE_SIZE"] = "0"


@pytest.fixture(autouse=True)
def no_internal_errors(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test in which the compiler met a defect of its own and chose another form: its results would be right.

    Tests of just that have the mark `internal_errors`.
    """
    with internal_errors.collect() as sentences:
        yield
    if request.node.get_closest_marker("internal_errors") is None:
        assert not sentences
