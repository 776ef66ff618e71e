"""What the `fusion` command ends with, so that scripts can tell outcomes apart."""

from __future__ import annotations

from fusion import errors

OK = 0
RESULTS_DIFFER = 1
USAGE = 2
NOT_SUPPORTED = 3
INTERNAL = 4
INTERRUPTED = 130

# The first class that matches counts.
_CODES = (
    (errors.UnsupportedOperatorError, NOT_SUPPORTED),
    (errors.InternalError, INTERNAL),
    (errors.FusionError, USAGE),
)


def exit_code(error: errors.FusionError) -> int:
    """Return the exit code for `error`: what the user can mend is a matter of usage."""
    return next(code for kind, code in _CODES if isinstance(error, kind))
