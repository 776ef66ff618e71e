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


def _shape_options(match: re.Match[str]) -> str:
    return " ".join(f"--shape {name}={_extents(shape)}" for name, shape in _ENTRY.findall(match[0]))


def _shape_option(match: re.Match[str]) -> str:
    return f"--shape {match['name']}={_extents(match['shape'])}"


def _extents(shape: str) -> str:
    return re.sub(r"[()'\s]", "", shape).rstrip(",")


def _backends_option(match: re.Match[str]) -> str:
    names = ",".join(re.findall(r"'([^']*)'", match[0]))
    return f"--backends {names}" if names else "--backends ''"


_EXTENTS = r"(?P<shape>\([^()]*\))"
_ENTRY = re.compile(r"'([^']*)': (\([^()]*\))")
# The first that matches a place counts, so the longer forms come first.
_WORDS = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (rf"shapes=\{{{_ENTRY.pattern}(, {_ENTRY.pattern})*\}}", _shape_options),
        (rf"shapes\['(?P<name>[^']*)'\] = {_EXTENTS}", _shape_option),
        (r"shapes\['([^']*)'\]", r"--shape \1"),
        (r"\bshapes=", "--shape"),
        (r"\bbounds\['([^']*)'\]", r"--bounds \1"),
        (r"\bbounds=", "--bounds"),
        (r"\bparams=", "--params"),
        (r"\bbackends=(?= )", "--backends"),
        (r"\bbackends=\['[^']*'(, '[^']*')*\]", _backends_option),
        (r"\bwith strict=False", "without --strict"),
        (r"\bstrict=True", "--strict"),
        (r"\bthreads=(?=[-\d])", "--threads "),
        (r"\bprecision=(['\"])([^'\"]*)\1", r"--precision \2"),
        (r"\beffort=(['\"])([^'\"]*)\1", r"--effort \2"),
        (r"\btarget=(?=\")", "--target "),
        (r"write it as a list, .*: target=\['([^':]*)[^']*'\]", r"the command takes --target \1"),
    )
)
