"""Gives libraries whole regions of the graph: what they may take, as a graph to be covered, and the pass."""

from fusion.passes.regions.offer import LibraryOffer
from fusion.passes.regions.read import RegionGraph, read_regions
from fusion.passes.regions.take import PlacedRegion, PlacedRegions, TakeRegions

__all__ = ["LibraryOffer", "PlacedRegion", "PlacedRegions", "RegionGraph", "TakeRegions", "read_regions"]
