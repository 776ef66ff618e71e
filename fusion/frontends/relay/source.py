"""What the user gave as a Relay module: its text, a file, an object that prints itself, or that with its parameters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fusion.errors import InvalidModelError, ModelFileError
from fusion.system.files import read_file

SUFFIX = ".relay"
_BEGINS = re.compile(
    r"(?:[\s\ufeff]|//[^\n]*\n|/\*(?:[^*]|\*(?!/))*\*/)*(?:#\[version|v0\.0\.\d|def\s+@|fn\s*[(\[]|free_var\s)"
)
_HEAD = 4096
"""Characters of a file that tell what it is: comments may stand before the version."""


@dataclass(frozen=True)
class RelayText:
    """The text of a module.

    Attributes:
        origin: Path of its file; empty where it did not come from one.
        params: Parameters that came with it, by name.
    """

    text: str
    origin: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)


def is_relay_file(path: str | Path) -> bool:
    """Whether a Relay text lies at `path`, or its name says so."""
    try:
        return Path(path).suffix == SUFFIX or _begins(Path(path))
    except (OSError, ValueError):
        return False


def find_text(model: Any) -> RelayText | None:
    """Return the Relay text that `model` is or gives, or None where it is something else.

    Args:
        model: A text (every str with a line break is one), the path of one (any suffix), an object with `astext`, or a
            tuple of such an object and its parameters, as the functions of `relay.frontend` return it.

    Raises:
        ModelFileError: A file called *.relay is missing, or holds no text.
        InvalidModelError: `astext` fails.
    """
    if isinstance(model, str) and ("\n" in model or _BEGINS.match(model)):
        return RelayText(model)
    if isinstance(model, (str, Path)):
        return _read(Path(model))
    if isinstance(model, tuple) and len(model) == 2 and isinstance(model[1], Mapping) and _prints(model[0]):
        return RelayText(_print(model[0]), params=model[1])
    return RelayText(_print(model)) if _prints(model) else None


def _read(path: Path) -> RelayText | None:
    named = path.suffix == SUFFIX
    try:
        if not named and not _begins(path):
            return None
        return RelayText(read_file(path).decode().replace("\r\n", "\n"), str(path))
    except (OSError, ValueError) as error:
        if not named:
            return None
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise ModelFileError(
            f"cannot read {str(path)!r}", why=why or "", hint="write it with open(path, 'w').write(mod.astext())"
        ) from error


def _begins(path: Path) -> bool:
    return _BEGINS.match(read_file(path, _HEAD).decode(errors="replace")) is not None


def _prints(model: Any) -> bool:
    return callable(getattr(model, "astext", None))


def _print(model: Any) -> str:
    try:
        flagged = "show_meta_data" in inspect.signature(model.astext).parameters
    except (TypeError, ValueError):
        flagged = False
    try:
        text = model.astext(show_meta_data=True) if flagged else model.astext()
    except Exception as error:  # whatever the object's own code raises
        raise InvalidModelError(
            f"astext() of the {type(model).__name__} fails", why=f"{type(error).__name__}: {str(error)[:300]}"
        ) from error
    if not isinstance(text, str):
        raise InvalidModelError(f"astext() of the {type(model).__name__} gives a {type(text).__name__}, no text")
    return text
