"""Operators are drawn by seed, and each becomes a kernel whose points have the features of its family."""

from __future__ import annotations

from collections import defaultdict
from math import isfinite

from fusion import context
from fusion.measuring import kernels_of
from fusion.pipeline import lower_graph
from tuning.features import features_of
from tuning.known import Knowledge
from tuning.workloads import draw_workloads


def test_a_seed_gives_the_same_ones_and_more_begin_with_fewer() -> None:
    few, many = draw_workloads(3, 10), draw_workloads(3, 30)
    assert [workload.name for workload in few] == [workload.name for workload in many[:10]]
    assert len({workload.name for workload in many}) == 30
    assert {workload.name for workload in draw_workloads(4, 30)} != {workload.name for workload in many}


def test_points_have_the_features_of_their_family() -> None:
    ctx = context.resolve("llvm", threads=2)
    knowledge, seen = Knowledge.of(None, ctx.compiler), defaultdict[tuple[str, str], list[frozenset[str]]](list)
    for workload in draw_workloads(1, 24):
        for kernel in knowledge.kernels(kernels_of(lower_graph(workload.module(), ctx).mod)).values():
            points = list(kernel.choices.space)[:40]
            found = features_of(kernel.choices.space, kernel.task.tensors, points)
            assert all(isfinite(value) for features in found for value in features.values()), workload.name
            different = {tuple(point.axes().items()) for point in points}
            assert len({tuple(features.items()) for features in found}) == len(different), workload.name
            for point, features in zip(points, found, strict=True):
                names = frozenset(name for name in features if not name.startswith("read"))
                seen[kernel.choices.family, type(point).__name__].append(names)
    assert {"matmul", "conv2d", "attention", "depthwise_conv2d", "stitch_stages"} <= {family for family, _ in seen}
    for kind, names in seen.items():
        assert len(set(names)) == 1, kind
