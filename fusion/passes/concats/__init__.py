"""Concatenations whose parts are written where they belong by the kernels that make them."""

from fusion.passes.concats.place import PlaceConcats as PlaceConcats
from fusion.passes.concats.placement import Placement as Placement
