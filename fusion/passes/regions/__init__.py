"""Gives libraries whole regions of the graph: the graph to be covered, what each library supports, and the pass."""

from fusion.passes.regions.offer import LibraryOffer, try_offer
from fusion.passes.regions.read import RegionGraph, read_regions
from fusion.passes.regions.take import PlacedRegion, PlacedRegions, TakeRegions, failure_of

__all__ = [
    "LibraryOffer", "PlacedRegion", "PlacedRegions", "RegionGraph", "TakeRegions", "failure_of", "read_regions",
    "try_offer",
]  # fmt: skip
