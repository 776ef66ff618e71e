"""Removes concatenations: kernels write their parts directly into the joined tensor."""

from fusion.passes.concats.place import PlaceConcats as PlaceConcats
from fusion.passes.concats.placement import Placement as Placement
