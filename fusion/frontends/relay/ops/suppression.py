"""Greedy non-maximum suppression as one loop over boxes sorted by their scores, which no tensor operator expresses."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import te
from tvm.relax import Expr
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from fusion.frontends.relay.call import Call

ABSENT, RIVAL, BYSTANDER = 0, 1, 2
"""Roles of a box: a bystander stays, but neither covers others nor counts."""


def kept_boxes(call: Call, boxes: Expr, groups: Expr, roles: Expr, limit: Expr, overlap: float) -> Expr:
    """Return which boxes stay, int32 [n, boxes]: those that no better one which stays covers too much of.

    Args:
        boxes: Two opposite corners each, [n, boxes, 4], the best ones first; n is an independent problem each.
        groups: [n, boxes]; only boxes of the same group cover each other.
        roles: int32 [n, boxes].
        limit: int32 [n], the most boxes that stay.
        overlap: Intersection over union from which on the worse box goes.
    """
    names = ("boxes", "groups", "roles", "limit")

    def suppress(*tensors: te.Tensor) -> te.Tensor:
        rows, count = tensors[1].shape
        return te.extern(
            [(rows, count)],
            list(tensors),
            lambda ins, outs: _loops((*ins, *outs), overlap),
            dtype=["int32"],
            in_buffers=[_declared(t.shape, t.dtype, name) for t, name in zip(tensors, names, strict=True)],
            out_buffers=[_declared((rows, count), "int32", "kept")],
            name="suppress",
        )

    return call.builder.call_te(suppress, boxes, groups, roles, limit)


def _declared(shape: Any, dtype: Any, name: str) -> Any:
    return tvm.tirx.decl_buffer(shape, dtype, name, layout=None)


def _loops(buffers: tuple[Any, ...], overlap: float) -> Any:
    """for row: taken = 0; for box: kept = present and taken < limit and no better one covers it; taken += kept"""
    rows, count, _ = buffers[0].shape
    threshold = tvm.tirx.const(overlap, buffers[0].dtype)
    with IRBuilder() as builder:
        boxes, groups, roles, limit, kept = map(T.buffer_proxy, buffers)
        with T.serial(0, rows) as row:
            taken = T.buffer_proxy(T.alloc_buffer((1,), "int32", scope="local"))
            taken[0] = T.int32(0)
            with T.serial(0, count) as box:
                kept[row, box] = T.int32(0)
                with T.If(tvm.tirx.all(roles[row, box] != ABSENT, taken[0] < limit[row])), T.Then():
                    kept[row, box] = T.int32(1)
                    with T.serial(0, box) as better:
                        rivals = (roles[row, box] == RIVAL, roles[row, better] == RIVAL)
                        stay = (kept[row, box] > 0, kept[row, better] > 0)
                        alike = groups[row, box] == groups[row, better]
                        with T.If(tvm.tirx.all(*rivals, *stay, alike)), T.Then():
                            share = _overlap(boxes, row, box, better)
                            with T.If(share >= threshold), T.Then():
                                kept[row, box] = T.int32(0)
                    with T.If(roles[row, box] == RIVAL), T.Then():
                        taken[0] = taken[0] + kept[row, box]
        return builder.get()


def _overlap(boxes: Any, row: Any, one: Any, other: Any) -> Any:
    """Return the intersection over the union, 0 where the union is empty."""
    zero = tvm.tirx.const(0, boxes.dtype)

    def bounds(box: Any, axis: int) -> tuple[Any, Any]:
        ends = boxes[row, box, axis], boxes[row, box, axis + 2]
        return te.min(*ends), te.max(*ends)

    sides = [(*bounds(one, axis), *bounds(other, axis)) for axis in (0, 1)]
    common = [te.max(zero, te.min(high, top) - te.max(low, bottom)) for low, high, bottom, top in sides]
    intersection = common[0] * common[1]
    areas = [(sides[0][at + 1] - sides[0][at]) * (sides[1][at + 1] - sides[1][at]) for at in (0, 2)]
    union = areas[0] + areas[1] - intersection
    return tvm.tirx.Select(union <= zero, zero, intersection / union)
