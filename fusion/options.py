"""The values that options of the API and the command line may have. Without TVM: a wrong one is told at once."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fusion.errors import OptionError

FAST, BALANCED = "fast", "balanced"
EFFORTS = (FAST, BALANCED)
# It is to search more than the points of templates' spaces.
_EFFORTS_TO_COME = ("max",)
GENERATOR, FALLBACK = "cpu", "onnxruntime"
BACKENDS = (GENERATOR, FALLBACK)
BF16_OR_FP32 = "bf16-or-fp32"
PRECISIONS = ("fp32", "bf16", BF16_OR_FP32)
# More than any machine has CPUs for one process; a pool of ten thousand threads fails when it starts.
_MOST_THREADS = 1024


def check_threads(threads: int | None) -> None:
    """Raise unless `threads` is a number of worker threads, or None.

    Raises:
        OptionError: It is not.
    """
    if threads is not None and not (isinstance(threads, int) and 1 <= threads <= _MOST_THREADS):
        raise OptionError(
            f"threads={threads} is not a number of threads",
            hint=f"use 1 to {_MOST_THREADS}, or leave it out for all CPUs this process may use",
        )


def check_effort(effort: str) -> None:
    """Raise unless `effort` is one of `EFFORTS`.

    Raises:
        OptionError: It is not.
    """
    if effort in _EFFORTS_TO_COME:
        raise OptionError(
            f"effort={effort!r} is not available yet",
            why="fusion measures the points of its templates, and searches for no others",
            hint='use effort="balanced"',
        )
    if effort not in EFFORTS:
        raise OptionError(f"unknown effort {effort!r}", hint=f"use one of {', '.join(EFFORTS)}")


def check_precision(precision: str) -> None:
    """Raise unless `precision` is one of `PRECISIONS`.

    Raises:
        OptionError: It is not.
    """
    if precision not in PRECISIONS:
        raise OptionError(f"unknown precision {precision!r}", hint=f"use one of {', '.join(PRECISIONS)}")


def check_backends(backends: Sequence[str] | None) -> None:
    """Raise unless `backends` is None or a list of `BACKENDS` with the generator among them.

    Raises:
        OptionError: It is not.
    """
    if backends is None:
        return
    listed = isinstance(backends, Collection) and not isinstance(backends, str)
    if not listed or any(name not in BACKENDS for name in backends):
        raise OptionError(f"backends={backends!r} names no backend", hint=f"give a list of {', '.join(BACKENDS)}")
    if GENERATOR not in backends:
        raise OptionError(
            f"backends={list(backends)} leaves out {GENERATOR!r}",
            why=f"{FALLBACK} runs only what {GENERATOR} cannot",
            hint="None allows all backends",
        )
