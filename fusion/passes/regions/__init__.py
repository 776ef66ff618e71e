"""Gives libraries whole regions of the graph: what they may take, as a graph to be covered, and the pass."""

from fusion.passes.regions.offer import LibraryOffer
from fusion.passes.regions.read import RegionGraph, read_regions
from fusion.passes.regions.take import PlacedRegion, PlacedRegions, TakeRegions, failure_of
from fusion.passes.regions.trial import try_libraries, try_offer

__all__ = [
    "LibraryOffer", "PlacedRegion", "PlacedRegions", "RegionGraph", "TakeRegions", "failure_of", "read_regions",
    "try_libraries", "try_offer",
]  # fmt: skip
