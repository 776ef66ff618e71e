"""The error of a run in ONNX Runtime: which node failed, and why, from its message."""

from __future__ import annotations

import re

from fusion.errors import OTHER_VALUES, ExecutionError

# "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Non-zero status code returned while running TopK node. Name:'top' Status
# Message: k argument [9] should not be greater than specified axis dim value [4]"
_NODE = re.compile(r"while running (?P<op>\w+) node\. Name:'(?P<name>.*?)' Status Message: (?P<why>.*)")
# What `check_operands` and `check_sizes` call the nodes that fail for others.
_CHECK = re.compile(r"(checked|sized)_\w+: (?P<why>.*)")
# Where in its sources a condition is, which is followed by what it means.
_PLACE = re.compile(r"^/\S+:\d+ .* was false\. (?=\S)")
_LONGEST = 400


def run_error(error: Exception) -> ExecutionError:
    """Return `error`, what a session raised while it ran, with the node that failed where its message names one."""
    text = _in_one_line(error)
    found = _NODE.search(text)
    if found is None:
        return ExecutionError("ONNX Runtime failed in a fallback subgraph", why=text[:_LONGEST], hint=OTHER_VALUES)
    check = _CHECK.fullmatch(found["name"])
    return ExecutionError(
        "an operator failed that runs on ONNX Runtime",
        where="" if check else f"{found['op']} {found['name']!r}",
        why=check["why"] if check else _PLACE.sub("", found["why"])[:_LONGEST],
        hint=OTHER_VALUES,
    )


def cause_of(error: Exception) -> str:
    """Return the message of an exception of ONNX Runtime in one line, its end cut off where it is long."""
    return _in_one_line(error)[:_LONGEST]


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())
