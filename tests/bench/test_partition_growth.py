"""The graphs that partition is timed on, and how growth is read from the times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.partition import report
from bench.partition.growth import GrowthPoint, exponent, measure
from bench.partition.shapes import SHAPES

POINTS = [
    GrowthPoint("chain", 100, 10, 0.1),
    GrowthPoint("chain", 1000, 100, 1.0),
    GrowthPoint("chain", 2000, 200, 4.0),
]


def test_every_shape_has_about_as_many_operators_as_asked_for() -> None:
    for point in measure(list(SHAPES), [120]):
        assert 80 <= point.operators <= 140, point
        assert point.kernels < point.operators
        assert point.seconds > 0


def test_growth_is_the_largest_exponent() -> None:
    assert exponent(POINTS[:2]) == pytest.approx(1)
    assert exponent(POINTS) == pytest.approx(2)
    assert exponent(POINTS[1:2]) is None
    assert exponent([GrowthPoint("chain", 1000, 1, 1.0), GrowthPoint("chain", 1001, 1, 2.0)]) is None


def test_the_report_has_a_line_a_shape() -> None:
    points = [*POINTS, GrowthPoint("fan", 500, 50, 0.5)]
    text = report.text(points)
    assert "| chain | 100: 0.10 | 1000: 1.00 | 2000: 4.00 | 200     | 2.00" in text
    assert "| fan   | 500: 0.50 |            |            | 50      |" in text
    assert json.loads(report.as_json(points))[0]["kernels"] == 10


def test_the_plot_is_an_image(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    report.plot(POINTS, tmp_path / "growth.svg")
    assert "<svg" in (tmp_path / "growth.svg").read_text()
