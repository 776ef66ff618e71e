"""Checks of values that only the run knows: what must hold, and the two forms in which a run looks.

    checked = call_tir(check_index, indices)    negative indices moved to their place, every one inside the axis
    y = take(x, checked)

What reads `checked` runs after the check, and no pass can drop the one without the other. A value that does not hold
raises an ExecutionError through `fusion.module.host_functions`. Bounds and texts (`conditions.py`, `kinds.py`) and the
form in NumPy (`in_numpy.py`) need no compiler, as loaded modules run that form too.
"""

from __future__ import annotations

CHECK = "fusion.check"
"""What `fusion.module.host_functions` registers: checks values of which the run alone knows a shape."""

FROM_ZERO = "fusion.indices_from_zero"
"""Attribute of imported modules in which no index that is data counts from the end, as PyTorch's operators have it."""
