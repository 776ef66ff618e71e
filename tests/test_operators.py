"""The table of Relax operators has a row for each that TVM has: without one, passes would be slow in silence."""

from __future__ import annotations

import tvm
from tvm import relax  # noqa: F401 - registers the operators

from fusion.operators import OPERATORS, OperatorKind, of_kind
from fusion.passes.layout.preferences import _PREFERRED
from fusion.passes.layout.rules import RULES

_OF_THE_COMPILER = ("builtin.", "vm.", "memory.", "ccl.", "grad.", "inspect.", "distributed.", "dist.")
"""What TVM's own passes put in place of operators."""


def test_every_operator_has_a_row() -> None:
    names = {name.removeprefix("relax.") for name in map(str, tvm.ir.Op.list_op_names()) if name.startswith("relax.")}
    assert {name for name in names if not name.startswith(_OF_THE_COMPILER)} == OPERATORS.keys()


def test_what_runs_in_several_orders_has_rules() -> None:
    """What is `FIXED` has none, but for prelu; of each other kind all operators have one, or none of them has."""
    without = {"nn.conv1d", "nn.conv1d_transpose", "nn.conv3d", "nn.conv3d_transpose"}  # other passes replace them
    placeless = of_kind(OperatorKind.FIXED, OperatorKind.NEW, OperatorKind.CALL)
    assert OPERATORS.keys() - placeless - without <= RULES.keys()
    assert not placeless & RULES.keys() - {"nn.prelu"}
    elsewhere = of_kind(OperatorKind.ELEMENTWISE, OperatorKind.REDUCTION) | {
        "concat"
    }  # what any order suits, and what wants none
    assert OPERATORS.keys() - placeless - without - elsewhere <= _PREFERRED.keys()
