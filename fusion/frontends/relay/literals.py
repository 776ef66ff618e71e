"""Numbers and strings as Relay's printer writes them."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

_NUMBER = re.compile(r"(?P<digits>-?(?:inf|nan|[^a-z]+(?:e[+-]?\d+)?))(?:(?P<kind>[fi])(?P<bits>\d*))?", re.IGNORECASE)
_LONGEST = 400
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|.)")
_ESCAPED = {"n": b"\n", "t": b"\t", "r": b"\r"}


class NumberError(ValueError):
    """A number is not of its dtype; the text says why."""


def read_scalar(text: str) -> np.ndarray:
    """Return `5`, `5i64`, `0.5f`, `-inff16` as a tensor of rank 0; an integer without width is int32 where it fits."""
    digits, kind, bits = _split(text)
    if kind == "i":
        value = _integer(digits)
        dtype = f"int{bits or (32 if -(1 << 31) <= value < 1 << 31 else 64)}"
        return _checked(text, dtype, ("int8", "int16", "int32", "int64"), value)
    number = float(digits)
    array = _checked(text, f"float{bits or 32}", ("float16", "float32", "float64"), number)
    if math.isfinite(number) and not np.isfinite(array):
        raise NumberError(f"{text} is no {array.dtype.name}")
    return array


def read_plain(text: str) -> int | float:
    """Return the value of a number in an attribute, whatever width it says."""
    digits, kind, _ = _split(text)
    return _integer(digits) if kind == "i" else float(digits)


def read_extent(text: str) -> int:
    """Return a dimension, 0 or more."""
    value = read_plain(text)
    if not isinstance(value, int) or value < 0:
        raise NumberError(f"{text} is no dimension")
    return value


def read_string(text: str) -> str:
    """Return what the quoted `text` means; bytes that are not ASCII are written as `\\xC3\\xA9`."""
    pieces = _ESCAPE.split(text[1:-1])
    data = b"".join(_unescape(piece) if index % 2 else piece.encode() for index, piece in enumerate(pieces))
    return data.decode(errors="replace")


def _unescape(escape: str) -> bytes:
    if len(escape) == 3:
        return bytes.fromhex(escape[1:])
    return _ESCAPED.get(escape, escape.encode())


def _split(text: str) -> tuple[str, str, str]:
    """Return the digits, "i" or "f", and the width of a number."""
    match = _NUMBER.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise NumberError(f"{text[:20]} is no number")
    whole = match["digits"].lstrip("-").isdigit()
    kind = (match["kind"] or ("i" if whole else "f")).lower()
    if kind == "i" and not whole:
        raise NumberError(f"{text} is no whole number")
    return match["digits"], kind, match["bits"] or ""


def _integer(digits: str) -> int:
    value = int(digits)
    if not -(1 << 63) <= value < 1 << 63:
        raise NumberError(f"{digits} does not fit 64 bits")
    return value


def _checked(text: str, dtype: str, dtypes: tuple[str, ...], value: Any) -> np.ndarray:
    if dtype not in dtypes:
        raise NumberError(f"{text} has an unknown width")
    try:
        with np.errstate(over="ignore"):
            return np.array(value, dtype)
    except OverflowError as error:
        raise NumberError(f"{text} is no {dtype}") from error
