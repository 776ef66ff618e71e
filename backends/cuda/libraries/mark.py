"""How a PrimFunc says which call of a library computes it, in the place of loops."""

from __future__ import annotations

import json
from typing import Any

from tvm import tirx
from tvm.ir import Var

from backends.cuda.libraries.call import DeviceLibraryCall, read_call
from fusion.declined import Declined

_CALL = "fusion.library_call"
"""The attribute that has the call, as JSON; the body is not used."""


def marked(func: tirx.PrimFunc, call: DeviceLibraryCall) -> tirx.PrimFunc:
    """Return `func` as one that a call computes."""
    return func.with_attr(_CALL, json.dumps(call.fields()))


def call_of(func: tirx.PrimFunc) -> DeviceLibraryCall | None:
    """Return the call that computes a PrimFunc; None where loops do."""
    held = func.attrs.get(_CALL) if func.attrs else None
    return None if held is None else read_call(json.loads(str(held)))


def parameter_of(func: tirx.PrimFunc, tensor: Any) -> int:
    """Return which parameter a tensor is, from 0 on.

    Raises:
        Declined: It is none.
    """
    found = [place for place, param in enumerate(func.params) if isinstance(tensor, Var) and param.same_as(tensor)]
    if not found:
        raise Declined("an operand is made inside of the kernel")
    return found[0]
