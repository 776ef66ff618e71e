"""Regions that are opened to run alone, where tests ask what they compute."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from fusion.passes.regions import TakeRegions
from fusion.passes.regions.write import RegionFunction


@contextmanager
def opened_to_run() -> Iterator[None]:
    """Have what libraries take opened once while the block lasts, by who runs it, where an error is the caller's.

    A compilation opens a region in another process and in this one, to see whether it can be; each time TVM and
    OpenVINO compile it, whole families of operators for seconds.
    """

    def exported(take: TakeRegions, name: str, region: RegionFunction) -> bytes:
        data: bytes = take.libraries[name].export(region.function)
        return data

    with mock.patch.object(TakeRegions, "_opened", exported):
        yield
