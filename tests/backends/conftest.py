"""What tests of libraries share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fusion.apart import asking_apart


@pytest.fixture(scope="module")
def one_process_apart() -> Iterator[None]:
    """Ask libraries for all compilations of a file in one process, where each would start its own."""
    with asking_apart():
        yield
