"""Divide and conquer, as AGO has it (Xu et al., arXiv 2212.01005): the search of a kernel with several anchors begins
with the register tiles at which its parts are fastest. Replayed over points that were measured."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2

import numpy as np

from backends.machine_limits import MachineLimits
from bench.markdown import table
from bench.tuning.drawn_chains import ChainKernel, TileOf, has_tile, tile_of, tiles_of_parts
from bench.tuning.measure import Found
from bench.tuning.regret import Judged, judged
from bench.tuning.replay import NOISE, by_search
from bench.tuning.replay_report import SEEDS, arrival, regrets_of, spread
from bench.tuning.report import TRIES

_BEGINS = 3
"""Points with the parts' tiles that are measured first, beside the default: with it four, as many as a search asks for
before it learns."""
_PART_TRIES = 4
"""Points of a part that are measured, its default among them."""

Tile = tuple[int, int]
"""Pixels and vectors."""


@dataclass(frozen=True)
class JudgedChain:
    """A kernel with several anchors, and those of its parts whose register tiles its points choose.

    Attributes:
        whole: The kernel.
        parts: The parts.
        tiles: For each, what finds its tile in a point of the whole.
    """

    whole: Judged
    parts: Sequence[Judged]
    tiles: Sequence[TileOf]

    def tiles_at(self, place: int) -> tuple[Tile, ...]:
        """Return the tiles of a point of the whole."""
        axes = self.whole.points[place].axes()
        return tuple(found(axes) for found in self.tiles)

    def begins(self, tiles: Sequence[Tile]) -> list[int]:
        """Return the points of the whole whose tiles are next to these, the least estimate first; the default is not
        among them."""
        places = range(len(self.whole.points))
        far = {place: _distance(self.tiles_at(place), tiles) for place in places}
        nearest = [place for place in places if far[place] == min(far.values())]
        return sorted((place for place in nearest if place), key=self.whole.cycles.__getitem__)

    def fastest_tiles(self, seed: int | None) -> list[Tile]:
        """Return at which tiles the parts are fastest: of all their points, or with a seed of the first ones by
        estimate, seen with noise."""
        rng = np.random.default_rng(seed)
        return [_fastest(part, None if seed is None else rng) for part in self.parts]


def judged_chains(chains: Sequence[ChainKernel], found: Found) -> list[JudgedChain]:
    """Return the chains that were measured with all parts that count."""
    kept = []
    for chain in chains:
        wanted = [
            (part, tile) for part, tile in zip(chain.parts, tiles_of_parts(chain), strict=True) if part and tile
        ]
        whole, parts = list(judged([chain.whole], found)), list(judged([part for part, _ in wanted], found))
        if whole and len(parts) == len(wanted):
            kept.append(JudgedChain(whole[0], parts, [tile for _, tile in wanted]))
    return kept


def report(chains: Sequence[JudgedChain], machine: MachineLimits) -> tuple[str, str]:
    """Return the report in Markdown, and its figures as JSON."""
    most, kernels = TRIES[-1], [chain.whole for chain in chains]
    orders: Mapping[str, list[list[list[int]]]] = {
        "search": [[by_search(kernel, seed, most) for kernel in kernels] for seed in range(SEEDS)],
        "begins with the parts' tiles, which cost nothing": [
            [_by_parts(chain, chain.fastest_tiles(None), seed) for chain in chains] for seed in range(SEEDS)
        ],
        f"begins with the parts' tiles, of {_PART_TRIES} points each, which count": [
            [_counted(chain, _by_parts(chain, chain.fastest_tiles(seed), seed)) for chain in chains]
            for seed in range(SEEDS)
        ],
    }
    rows = [
        [name, *(spread(regrets_of(kernels, found, tries)) for tries in TRIES), arrival(kernels, found)]
        for name, found in orders.items()
    ]
    points = sum(len(kernel.points) for kernel in kernels)
    of_parts = sum(len(part.points) for chain in chains for part in chain.parts)
    details = [_detail(chain) for chain in chains]
    text = "\n\n".join(
        [
            "# Chains that begin with the tiles of their parts",
            f"{machine.threads} threads, float32, {len(kernels)} kernels with {points} points, {of_parts} points of "
            f"their parts, {SEEDS} seeds of noise. Regret: median, 90th percentile and mean; after how many points a "
            "kernel's regret is 1% at most, and of how many kernels it is.",
            table(["search", *(f"{tries} measured" for tries in TRIES), "arrives after"], rows),
            "Pixels x vectors; the regret of the best point that has these tiles.",
            table(
                ["kernel", "points", "choices of tiles", "default", "the default's tiles", "the best point's",
                 "the parts' (nearest)"], details,
            ),
        ]
    )  # fmt: skip
    regrets = {name: {tries: regrets_of(kernels, its, tries) for tries in TRIES} for name, its in orders.items()}
    return f"{text}\n", json.dumps({"kernels": [kernel.name for kernel in kernels], "regrets": regrets}, indent=1)


def _by_parts(chain: JudgedChain, tiles: Sequence[Tile], seed: int) -> list[int]:
    return by_search(chain.whole, seed, TRIES[-1], begins=chain.begins(tiles)[:_BEGINS])


def _counted(chain: JudgedChain, order: list[int]) -> list[int]:
    """Return what was measured in order: the default, once more in the place of each point of a part, as those choose
    nothing yet, and then the points of the whole."""
    return [order[0], *[0] * (_PART_TRIES * len(chain.parts)), *order[1:]][: TRIES[-1]]


def _fastest(part: Judged, rng: np.random.Generator | None) -> Tile:
    """Return the tile of the fastest point that has one; of the first ones by estimate, if there is a generator of
    noise."""
    order = [int(place) for place in np.argsort(part.by_tables, kind="stable") if has_tile(part.points[place])]
    seconds = np.array(part.space.seconds)
    if rng is not None:
        order, seconds = order[:_PART_TRIES], seconds * np.exp(NOISE * rng.standard_normal(len(seconds)))
    best = min(order, key=seconds.__getitem__)
    return tile_of("tile")(part.points[best].axes())


def _distance(some: Sequence[Tile], others: Sequence[Tile]) -> float:
    """Return how far tiles are apart, in octaves; vectors count first, as pixels follow from them."""
    pairs = list(zip(some, others, strict=True))
    vectors = sum(abs(log2(one[1] / other[1])) for one, other in pairs)
    return 100 * vectors + sum(abs(log2(one[0] / other[0])) for one, other in pairs)


def _detail(chain: JudgedChain) -> list[str]:
    whole, places = chain.whole, range(len(chain.whole.points))
    best = int(np.argmin(whole.space.seconds))
    parts = chain.fastest_tiles(None)
    near = [*chain.begins(parts)] or [0]
    own = [place for place in places if chain.tiles_at(place) == chain.tiles_at(near[0])]
    default = [place for place in places if chain.tiles_at(place) == chain.tiles_at(0)]
    return [
        whole.name,
        str(len(whole.points)),
        str(len({chain.tiles_at(place) for place in places})),
        f"{whole.regret_of([0]):.1%}",
        f"{_named(chain.tiles_at(0))}: {whole.regret_of(default):.1%}",
        _named(chain.tiles_at(best)),
        f"{_named(parts)} ({_named(chain.tiles_at(near[0]))}): {whole.regret_of(own):.1%}",
    ]


def _named(tiles: Sequence[Tile]) -> str:
    return ", ".join(f"{pixels}x{vectors}" for pixels, vectors in tiles)

