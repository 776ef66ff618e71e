"""TE forms of Relax operators that the CPU templates schedule well: `relax.transform.LegalizeOps(LEGALIZATIONS)`."""

from __future__ import annotations

from backends.cpu.legalize.activations import ACTIVATIONS
from backends.cpu.legalize.casts import CASTS
from backends.cpu.legalize.common import FLegalize
from backends.cpu.legalize.concats import CONCATS
from backends.cpu.legalize.divisions import DIVISIONS
from backends.cpu.legalize.extrema import EXTREMA
from backends.cpu.legalize.filling import FILLING
from backends.cpu.legalize.indexing import INDEXING
from backends.cpu.legalize.limits import LIMITS
from backends.cpu.legalize.normalizations import NORMALIZATIONS
from backends.cpu.legalize.scatters import SCATTERS
from backends.cpu.legalize.softmax import SOFTMAX
from backends.cpu.legalize.sorting import SORTING
from backends.cpu.legalize.sums import SUMS

SAFE: dict[str, FLegalize] = {**DIVISIONS, **INDEXING, **SCATTERS}
"""Those in whose place TVM's would read or write outside of a tensor, or trap: no form of a model does without."""

LEGALIZATIONS: dict[str, FLegalize] = {
    **SAFE, **ACTIVATIONS, **CASTS, **CONCATS, **EXTREMA, **FILLING, **LIMITS, **NORMALIZATIONS, **SOFTMAX, **SORTING,
    **SUMS,
}  # fmt: skip
