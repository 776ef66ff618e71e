"""What oneDNN takes, as TVM's patterns, made of the tables of operators."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Sequence
from itertools import product

import tvm
from tvm.relax.backend.utils import has_leaking_intermediate_variables
from tvm.relax.dpl import DFPattern, is_op, wildcard
from tvm.relax.transform import FusionPattern, PatternCheckContext

from backends.onednn.api import OneDnnError, onednn
from backends.onednn.chain import CallChain
from backends.onednn.primitives import describe
from backends.onednn.read import ALONE, ELTWISE, PRODUCTS, read_operation
from fusion.declined import Declined

_log = logging.getLogger("fusion.backends")
_MOST_ADDED = 2
"""A bias, and what a block adds to its input."""


def make_patterns() -> Sequence[FusionPattern]:
    """Return the patterns, what takes most operators first."""
    return [
        *(FusionPattern(f"onednn.{name}", pattern, check=_is_taken) for name, pattern in _chains()),
        *(FusionPattern(f"onednn.{name}", _call(name), check=_is_taken) for name in ALONE),
    ]


def why_not_taken(chain: CallChain) -> str:
    """Return why oneDNN does not compute a chain; "" where it does."""
    try:
        operation, _ = read_operation(chain)
        describe(onednn(), operation)
    except (Declined, OneDnnError) as reason:
        return str(reason)
    return ""


def _chains() -> Iterator[tuple[str, DFPattern]]:
    """Yield each product with all that may follow it, by name."""
    for added, ends in product(reversed(range(_MOST_ADDED + 1)), (True, False)):
        for name in PRODUCTS:
            pattern = _call(name)
            for _ in range(added):
                pattern = is_op("relax.add")(pattern, wildcard()) | is_op("relax.add")(wildcard(), pattern)
            yield f"{name}{'_add' * added}{'_eltwise' * ends}", _any_eltwise(pattern) if ends else pattern


def _any_eltwise(pattern: DFPattern) -> DFPattern:
    return functools.reduce(lambda one, other: one | other, (_call(name, pattern) for name in ELTWISE))


def _call(name: str, first: DFPattern | None = None) -> DFPattern:
    """Return the pattern of a call whose first operand is one of `first`."""
    operator = is_op(f"relax.{name}")
    count = len(tvm.ir.Op.get(f"relax.{name}").arguments)
    return operator(wildcard() if first is None else first, *(wildcard() for _ in range(count - 1)))


def _is_taken(context: PatternCheckContext) -> bool:
    if has_leaking_intermediate_variables(context):
        return False
    try:
        chain = CallChain.matched(context.matched_bindings, context.matched_expr)
    except Declined as reason:
        why = str(reason)
    else:
        why = why_not_taken(chain)
    if why:
        _log.debug("onednn does not take %s: %s", context.matched_expr, why)
    return not why
