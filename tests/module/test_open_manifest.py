"""What a saved module says of its form for all sizes is refused where it does not fit together."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import fusion
from fusion.module.archive import Archive
from fusion.module.manifest import from_fields, to_json
from tests.module.open_models import text

Damage = Callable[[dict[str, Any]], Any]
HUGE = 10**30
THREE = {"constant": 3, "coefficient": 0, "symbols": []}


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "m.fusion"
    fusion.compile(text().proto).save(path)
    return bytes(Archive(path).read_manifest())


def test_it_comes_back_as_it_was(manifest: bytes) -> None:
    assert to_json(from_fields(json.loads(manifest))) == manifest
    opened = json.loads(manifest)["forms"][0]["opened"]
    assert opened["weights"]
    assert opened["buffers"] or opened["arguments"]


def first_open(opened: dict[str, Any]) -> dict[str, Any]:
    """Return the first extent with symbols of what a kernel takes."""
    return next(extent for call in opened["arguments"] for shape in call for extent in shape if extent["symbols"])


def _counted(steps: list[Any], shape: list[Any]) -> dict[str, Any]:
    """Return numbers that are counted, as a manifest holds them."""
    return {"first": THREE, "steps": steps, "shape": shape, "divisor": THREE}


DAMAGES: dict[str, Damage] = {
    "an unknown symbol": lambda opened: first_open(opened).update(symbols=["other"]),
    "too large a product": lambda opened: first_open(opened).update(coefficient=HUGE),
    "a negative extent": lambda opened: first_open(opened).update(constant=-HUGE),
    "another call": lambda opened: opened["arguments"].pop(),
    "another buffer": lambda opened: opened["buffers"].append([]),
    "another input": lambda opened: opened["dims"].append([]),
    "another rank": lambda opened: opened["dims"][0].append("batch"),
    "a digit that is no number": lambda opened: opened["dims"][0].__setitem__(0, "²"),
    "a size in place of a symbol": lambda opened: opened["dims"][0].__setitem__(0, "3"),
    "a negative size": lambda opened: opened["dims"][0].__setitem__(0, "-3"),
    "no bounds": lambda opened: opened["bounds"].clear(),
    "one bound": lambda opened: opened["bounds"]["batch"].pop(),
    "bounds the other way round": lambda opened: opened["bounds"].update(batch=[4096, 1, 1]),
    "no steps": lambda opened: opened["bounds"]["batch"].__setitem__(2, 0),
    "an end between steps": lambda opened: opened["bounds"]["batch"].__setitem__(2, 3),
    "negative bounds": lambda opened: opened["bounds"]["batch"].__setitem__(0, -1),
    "bounds behind the table": lambda opened: opened["bounds"]["length"].__setitem__(1, HUGE),
    "a short table": lambda opened: opened["weights"][0]["table"].update(shape=[2, 16]),
    "a table of another rank": lambda opened: opened["weights"][0]["table"].update(shape=[16]),
    "numbers of another shape": lambda opened: opened["weights"][0].update(
        window=None, counts=[_counted([THREE] * 2, [THREE] * 2)]
    ),
    "runs of another length": lambda opened: opened["weights"][0].update(
        window=None, counts=[_counted([THREE], [THREE])] * 2
    ),
    "numbers along other axes": lambda opened: opened["weights"][0].update(
        window=None, counts=[_counted([THREE], opened["weights"][0]["shape"])]
    ),
    "no numbers and no table": lambda opened: opened["weights"][0].update(window=None, counts=[]),
    "no number": lambda opened: first_open(opened).update(constant=1.5),
    "no list": lambda opened: opened.update(weights={}),
}


@pytest.mark.parametrize("bounds", [[1], [9, 1, 1], [1, 9, 0], [-1, 9, 1], [1, 9, 3], ["1", "9", "1"]])
def test_sizes_that_the_user_gave_are_ranges(manifest: bytes, bounds: list[Any]) -> None:
    assert from_fields({**json.loads(manifest), "bounds": {"length": [1, 9, 2]}}).bounds == {"length": (1, 9, 2)}
    with pytest.raises(ValueError, match="bounds"):
        from_fields({**json.loads(manifest), "bounds": {"length": bounds}})


def test_what_kernels_do_depends_on_known_sizes(manifest: bytes) -> None:
    fields = json.loads(manifest)
    counts = [count for info in fields["forms"][0]["kernels"].values() for count in info["sized"]["flops"]]
    next(extent for count in counts for extent in count["extents"] if extent["symbols"]).update(symbols=["other"])
    with pytest.raises(ValueError, match="unknown sizes"):
        from_fields(fields)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("numbers of another shape", "do not make up"),
        ("runs of another length", "behind one another"),
        ("numbers along other axes", "along other axes"),
    ],
)
def test_numbers_that_do_not_fit_are_told(kind: str, reason: str, manifest: bytes) -> None:
    fields = json.loads(manifest)
    DAMAGES[kind](fields["forms"][0]["opened"])
    with pytest.raises(ValueError, match=reason):
        from_fields(fields)


@pytest.mark.parametrize("kind", DAMAGES)
def test_what_does_not_fit_is_refused(kind: str, manifest: bytes) -> None:
    fields = json.loads(manifest)
    DAMAGES[kind](fields["forms"][0]["opened"])
    with pytest.raises(ValueError, match=r"\w"):
        from_fields(fields)
