"""TE forms of Relax operators that the CPU templates schedule well: `relax.transform.LegalizeOps(LEGALIZATIONS)`."""

from __future__ import annotations

from backends.tensorir.legalize.activations import ACTIVATIONS
from backends.tensorir.legalize.casts import CASTS
from backends.tensorir.legalize.common import FLegalize
from backends.tensorir.legalize.concats import CONCATS
from backends.tensorir.legalize.divisions import DIVISIONS
from backends.tensorir.legalize.extrema import EXTREMA
from backends.tensorir.legalize.filling import FILLING
from backends.tensorir.legalize.indexing import INDEXING
from backends.tensorir.legalize.limits import LIMITS
from backends.tensorir.legalize.missing import MISSING
from backends.tensorir.legalize.normalizations import NORMALIZATIONS
from backends.tensorir.legalize.resizes import RESIZES
from backends.tensorir.legalize.scatters import SCATTERS
from backends.tensorir.legalize.selections import SELECTIONS
from backends.tensorir.legalize.softmax import SOFTMAX
from backends.tensorir.legalize.sorting import SORTING
from backends.tensorir.legalize.sums import SUMS
from backends.tensorir.legalize.unsigned import UNSIGNED
from backends.tensorir.legalize.wraps import WRAPS
from backends.tensorir.legalize.zeros import ZEROS

SAFE: dict[str, FLegalize] = {**DIVISIONS, **INDEXING, **SCATTERS, **UNSIGNED, **WRAPS}
"""Those in whose place TVM's would read or write outside of a tensor, trap, or end the process: no form of a
model does without."""

LEGALIZATIONS: dict[str, FLegalize] = {
    **SAFE, **ACTIVATIONS, **CASTS, **CONCATS, **EXTREMA, **FILLING, **LIMITS, **MISSING, **NORMALIZATIONS, **RESIZES,
    **SELECTIONS, **SOFTMAX, **SORTING, **SUMS, **ZEROS,
}  # fmt: skip
