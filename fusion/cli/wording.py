"""Says in the command's words what errors say in Python's: `shapes={'x': (1, 3)}` is `--shape x=1,3` there."""

from __future__ import annotations

import re

from fusion.errors import FusionError


def command_text(error: FusionError) -> str:
    """Return the text of `error` with every option of the API written as the command's."""
    text = str(error)
    for pattern, words in _WORDS:
        text = pattern.sub(words, text)
    return text


def _shape_option(match: re.Match[str]) -> str:
    extents = re.sub(r"[()\s]", "", match["shape"]).rstrip(",")
    return f"--shape {match['name']}={extents}"


_EXTENTS = r"(?P<shape>\([^()]*\))"
# The first that matches a place counts, so the longer forms come first.
_WORDS = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (rf"shapes=\{{'(?P<name>[^']*)': {_EXTENTS}\}}", _shape_option),
        (rf"shapes\['(?P<name>[^']*)'\] = {_EXTENTS}", _shape_option),
        (r"shapes\['([^']*)'\]", r"--shape \1"),
        (r"\bshapes=", "--shape"),
        (r"\bparams=", "--params"),
        (r"\bwith strict=False", "without --strict"),
        (r"\bstrict=True", "--strict"),
        (r"\bthreads=(?=[-\d])", "--threads "),
        (r"\bprecision=(['\"])([^'\"]*)\1", r"--precision \2"),
        (r"\beffort=(['\"])([^'\"]*)\1", r"--effort \2"),
        (r"\btarget=(?=\")", "--target "),
    )
)
