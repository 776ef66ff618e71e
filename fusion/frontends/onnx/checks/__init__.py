"""Refuses a node that has no result on any backend, before anything computes with it.

ONNX Runtime is the measure of what is refused; what is not known of a type or a value contradicts nothing. The rules
are data, a file a kind: `schema` what the operator's definition says, `values` ranges of attributes, `axes` what counts
axes, `windows` convolutions and pools, `operands` and `parameters` shapes that must fit each other, `constants` values
that say which shape a result has. What they do not know, ONNX's own inference refuses (`infer`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fusion.errors import FusionError, InvalidModelError, ShapeError
from fusion.frontends.onnx.checks.axes import axes_out_of_range
from fusion.frontends.onnx.checks.constants import constants_that_shape_nothing
from fusion.frontends.onnx.checks.operands import operands_that_do_not_fit
from fusion.frontends.onnx.checks.parameters import parameters_that_do_not_fit
from fusion.frontends.onnx.checks.schema import breaches_of_the_schema
from fusion.frontends.onnx.checks.values import values_out_of_range
from fusion.frontends.onnx.checks.windows import windows_that_do_not_fit
from fusion.frontends.onnx.node import Node

Rule = Callable[[Node], Iterator[str]]

OTHER_SHAPES = "correct the node where the model is made, or give the model inputs of other shapes"
"""What to do about shapes that contradict each other."""
# In this order: each may rely on what those before it let pass.
_RULES: tuple[tuple[Rule, type[FusionError], str], ...] = (
    (breaches_of_the_schema, InvalidModelError, "{} breaks the rules of its operator"),
    (values_out_of_range, ShapeError, "{} has an attribute out of range"),
    (axes_out_of_range, ShapeError, "{} names an axis that its input has not"),
    (windows_that_do_not_fit, ShapeError, "the shapes of {} contradict each other"),
    (operands_that_do_not_fit, ShapeError, "the shapes of {} contradict each other"),
    (parameters_that_do_not_fit, ShapeError, "the shapes of {} contradict each other"),
    (constants_that_shape_nothing, ShapeError, "the shapes of {} contradict each other"),
)


def check_node(node: Node) -> None:
    """Check what `node` says against its operator's definition and against what is known of its inputs.

    Raises:
        InvalidModelError: It breaks the operator's definition.
        ShapeError: Its attributes, constants and shapes contradict each other.
    """
    for rule, error, what in _RULES:
        for why in rule(node):
            raise error(
                what.format(node.op),
                where=node.where,
                why=why,
                hint=OTHER_SHAPES,
            )
