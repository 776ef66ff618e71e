"""Says of a kernel that a pass would make whether a template takes it."""

from __future__ import annotations

from tvm import tirx

from backends.cpu.anchors.chains import read_kernel
from backends.cpu.anchors.roles import find_anchors
from backends.cpu.templates.result import NotRecognized
from backends.cpu.templates.stages import read_stages


def decline_kernel(func: tirx.PrimFunc) -> str:
    """Return why no template writes `func`, but the plain loops; "" where one does."""
    try:
        if find_anchors(func):
            read_kernel(func)
        else:
            read_stages(func)
    except NotRecognized as reason:
        return str(reason)
    return ""
