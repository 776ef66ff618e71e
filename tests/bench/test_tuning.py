"""Regrets are of what was measured, and models are asked about kernels that they have not seen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from backends.machine_limits import MachineLimits
from backends.tensorir.space import Space
from bench.tuning.by_parts import JudgedChain, report
from bench.tuning.by_trees import by_trees
from bench.tuning.drawn_chains import drawn_chains, tile_of, tiles_of_parts
from bench.tuning.regret import Judged, by_machine_models, by_models
from bench.tuning.replay import by_chance, by_search, by_tables
from bench.tuning.thin import thinned
from fusion import context
from tests.tuning.test_point_search import POINTS, Cut, ratio
from tuning.cost_model import MeasuredSpace

MACHINE = MachineLimits(2, 100.0, ())


@dataclass(frozen=True)
class Tiled:
    """A point with register tiles of one row."""

    tiles: Mapping[str, tuple[int, int]]
    bands: int
    cycles: float

    def axes(self) -> Mapping[str, int]:
        each = ({"height": 1, "width": width, "vectors": vectors} for width, vectors in self.tiles.values())
        named = zip(self.tiles, each, strict=True)
        return {f"{name}.{axis}": size for name, sizes in named for axis, size in sizes.items()} | {"bands": self.bands}


def test_regret_is_of_the_first_points_of_an_order() -> None:
    kernel = Judged("k", "f", (), [10, 20, 5], MeasuredSpace([{}, {}, {}], [3.0, 2.0, 4.0]))
    assert kernel.regret(kernel.by_tables, 1) == pytest.approx(0.5)
    assert kernel.regret(kernel.by_tables, 2) == pytest.approx(0.5)  # the default, then the least estimate
    assert kernel.regret(kernel.by_tables, 3) == 0
    assert kernel.regret([3, 1, 2], 1) == 0


def test_a_model_never_learns_the_kernel_that_it_is_asked_about() -> None:
    """Each kernel's best point is at random: who has seen it could know it, others cannot."""
    draw = np.random.default_rng(1)
    kernels = []
    for number in range(40):
        features = [{"kernel": float(number), "point": float(place)} for place in range(12)]
        seconds = draw.permutation(np.geomspace(1, 3, 12))
        kernels.append(Judged(f"k{number}", "f", (), [1.0] * 12, MeasuredSpace(features, [float(s) for s in seconds])))
    regrets = [k.regret(order, 1) for k, order in zip(kernels, by_models(kernels, families=False), strict=True)]
    assert np.mean(regrets) > 0.3


def test_a_model_of_the_machine_takes_what_it_is_sure_of() -> None:
    """Points of the kind "b" take three quarters of the time of the default, which the tables do not know."""
    draw, kernels = np.random.default_rng(2), []
    for number in range(24):
        kinds = [0, *draw.integers(0, 2, 9), 1]
        seconds = [(1.0 if kind else 1.3) * float(np.exp(draw.normal(0, 0.01))) for kind in kinds]
        features = [{"kernel": float(number), "b": float(kind)} for kind in kinds]
        kernels.append(Judged(f"k{number}", "f", (), [1.0 + kind for kind in kinds], MeasuredSpace(features, seconds)))
    regrets = [k.regret(order, 1) for k, order in zip(kernels, by_machine_models(kernels), strict=True)]
    assert np.mean(regrets) < 0.05
    assert np.argmin(by_machine_models(kernels[:3])[0]) == 0, "two others are too few to say that it gains"


def test_kernels_of_a_family_that_nobody_knows_keep_their_default() -> None:
    space = MeasuredSpace([{"a": 0.0}, {"a": 1.0}], [2.0, 1.0])
    often = (Judged(f"k{n}", "often", (), [1, 2], space) for n in range(20))
    kernels = [Judged("one", "seldom", (), [1, 2], space), *often]
    orders = by_models(kernels, families=True)
    assert orders[0] == kernels[0].by_tables
    assert all(order[1] < order[0] for order in orders[1:])


def test_a_replayed_search_measures_each_point_once_and_beats_what_does_not_learn() -> None:
    took = [ratio(point) for point in POINTS]
    kernel = Judged("k", "f", POINTS, [point.cycles for point in POINTS], MeasuredSpace([{}] * len(took), took))
    for seed in range(3):
        found = by_search(kernel, seed, 16)
        assert found[0] == 0
        assert len(set(found)) == len(found) <= 16
        assert found == by_search(kernel, seed, 16)
        assert kernel.regret_of(found) < kernel.regret_of(by_tables(kernel, seed, 16))
        drawn = by_chance(kernel, seed, 16)
        assert len(set(drawn)) == 16
        assert drawn[0] == 0


def test_trees_that_kernels_share_find_what_each_alone_does_not() -> None:
    """Points of the kind "b" are faster; those of the last kernel are the last ones by the tables."""
    kernels = []
    for number in range(12):
        kinds = [float(place in ((19,) if number == 11 else (1, 3))) for place in range(20)]
        space = MeasuredSpace([{"b": kind} for kind in kinds], [1.0 - 0.3 * kind for kind in kinds])
        kernels.append(Judged(f"k{number}", "f", POINTS[:20], [1.0 + place for place in range(20)], space))
    shared = by_trees(kernels, 0, 8, lambda kernel: kernel.family)
    alone = by_trees(kernels, 0, 8, lambda kernel: kernel.name)
    assert all(len(set(order)) == len(order) == 8 for order in (*shared, *alone))
    assert kernels[-1].regret_of(shared[-1]) == 0 < kernels[-1].regret_of(alone[-1])


def test_a_thinned_space_keeps_the_default_and_whole_lines_of_others() -> None:
    default = POINTS[5]
    found: list[Cut] = thinned(Space(default, lambda: iter(POINTS)), 40)  # type: ignore[assignment]
    heights, chunks = ({getattr(point, name) for point in found} for name in ("height", "chunks"))
    assert 20 <= len(found) < 40
    assert default not in found
    assert default.height in heights
    assert len(found) + 1 == len(heights) * len(chunks)


def test_a_chain_begins_with_the_tiles_of_its_parts_and_pays_for_them() -> None:
    """Of its points only those whose vectors are the second part's are fast; the tables put them last."""
    points = [
        Tiled({"first": (6, first), "second": (6, second)}, bands, 100.0 + 10 * second + first + bands)
        for first, second, bands in product((1, 2), (1, 2, 3, 4), (1, 2, 4))
    ]
    took = [0.5 if point.tiles["second"] == (6, 4) else 1.0 for point in points]
    cycles = [point.cycles for point in points]
    whole = Judged("k", "conv_chain", points, cycles, MeasuredSpace([{}] * len(took), took))
    of_part = [Tiled({"tile": (5, vectors)}, 1, 1.0 * vectors) for vectors in (1, 2, 4)]
    space = MeasuredSpace([{}] * 3, [3.0, 2.0, 1.0])
    part = Judged("p", "depthwise_conv2d", of_part, [point.cycles for point in of_part], space)
    chain = JudgedChain(whole, [part], [tile_of("second")])
    assert chain.fastest_tiles(None) == [(5, 4)]
    begins = chain.begins(chain.fastest_tiles(None))
    assert {chain.tiles_at(place) for place in begins} == {((6, 4),)}
    assert cycles[begins[0]] == min(cycles[place] for place in begins)
    _, data = report([chain], MACHINE)
    search, free, counted = json.loads(data)["regrets"].values()
    assert search["4"] == counted["4"] == [100.0] * 5, "the tables, and the parts alone"
    assert free["4"] == counted["8"] == [0.0] * 5


def test_a_drawn_chain_is_taken_apart_into_kernels_with_tiles() -> None:
    (chain,) = drawn_chains(7, 1, context.resolve(threads=2), 4)
    tiles = tiles_of_parts(chain)
    assert len(tiles) == len(chain.parts) > 1
    for tile, part in zip(tiles, chain.parts, strict=True):
        assert tile is not None
        assert part is not None
        assert part.question.weights == {1}
        assert tile(chain.whole.question.points[0].axes())[1] > 0
