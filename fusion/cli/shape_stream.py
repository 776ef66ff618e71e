"""The file of `fusion bench --shapes`: the shapes of many calls as JSON. Without TVM: what is wrong is told at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fusion.errors import OptionError
from fusion.system.files import read_file

Shapes = Mapping[str, tuple[int, ...]]
_FORM = 'write a list of calls, each from input to extents: [{"x": [1, 17]}, {"x": [4, 9]}]'


def read_stream(path: str) -> list[Shapes]:
    """Return the shapes by input name of each call that the file at `path` lists.

    Raises:
        OptionError: There is no such file, it holds no such list, or the list is empty.
    """
    try:
        calls = json.loads(read_file(path))
    except OSError as error:
        raise OptionError(
            f"cannot open the stream of shapes {path!r}", why=error.strerror or str(error), hint="check the path"
        ) from error
    except (ValueError, RecursionError) as error:
        raise OptionError("the stream of shapes is not JSON", where=path, why=str(error), hint=_FORM) from error
    if not isinstance(calls, list) or not calls:
        why = "the list is empty" if calls == [] else f"it holds a {type(calls).__name__}"
        raise OptionError("the stream of shapes is not a list of calls", where=path, why=why, hint=_FORM)
    return [_read_call(call, where(path, place)) for place, call in enumerate(calls)]


def where(path: str, place: int) -> str:
    """Return the words for a call of the file."""
    return f"{path}, call {place + 1}"


def _read_call(call: Any, place: str) -> Shapes:
    if not isinstance(call, dict):
        raise OptionError(
            "a call is no object from input name to extents", where=place, why=f"it is {call!r:.80}", hint=_FORM
        )
    for name, extents in call.items():
        # By type: True is an int.
        if not isinstance(extents, list) or not all(type(extent) is int and extent >= 0 for extent in extents):
            raise OptionError(
                f"a shape of input {name!r} is no list of whole numbers, 0 or more",
                where=place,
                why=f"it is {extents!r:.80}",
                hint=_FORM,
            )
    return {name: tuple(extents) for name, extents in call.items()}
