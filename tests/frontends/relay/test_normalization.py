from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from tests.frontends.relay.operators import Case, check, refused
from tests.frontends.relay.test_convolution import random


def column(vector: np.ndarray, rank: int, axis: int) -> np.ndarray:
    return vector.reshape([-1 if index == axis else 1 for index in range(rank)])


def standard(x: np.ndarray, axes: tuple[int, ...], epsilon: float = 1e-5) -> np.ndarray:
    wide = x.astype(np.float64)
    return (wide - wide.mean(axes, keepdims=True)) / np.sqrt(wide.var(axes, keepdims=True) + epsilon)


def test_batch_norm() -> None:
    """What `scale=False` and `center=False` leave out does not count, whatever their operands hold."""
    x, gamma, beta, mean, spread = random(2, 3, 4, 5), random(3), random(3), random(3), np.abs(random(3)) + 0.5
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))

    def wanted(data: np.ndarray, axis: int, scale: bool, center: bool, epsilon: float = 1e-5) -> list[np.ndarray]:
        columns = [column(vector.astype(np.float64), 4, axis) for vector in (gamma, beta, mean, spread)]
        y = (data - columns[2]) / np.sqrt(columns[3] + epsilon)
        y = y * columns[0] if scale else y
        return [(y + columns[1] if center else y).astype(np.float32), mean, spread]

    operands = [gamma, beta, mean, spread]
    check(
        [
            Case("nn.batch_norm", [x, *operands], wanted(x, 1, True, True)),
            Case("nn.batch_norm", [x, *operands], wanted(x, 1, False, True), {"scale": False}),
            Case("nn.batch_norm", [x, *operands], wanted(x, 1, True, False), {"center": False}),
            Case("nn.batch_norm", [last, *operands], wanted(last, 3, True, True, 0.1), {"axis": 3, "epsilon": 0.1}),
        ]
    )


def test_statistics_of_the_data() -> None:
    x, gamma, beta = random(2, 6, 4, 5), random(6), random(6)
    deep, width = random(2, 3, 8), (random(8), random(8))
    grouped = F.group_norm(*map(torch.from_numpy, (x,)), 2, torch.from_numpy(gamma), torch.from_numpy(beta)).numpy()
    instance = standard(x, (2, 3)) * column(gamma, 4, 1) + column(beta, 4, 1)
    inner = standard(x, (1,)) * column(gamma, 4, 1) + column(beta, 4, 1)
    plain = standard(deep, (2,))
    check(
        [
            Case("nn.layer_norm", [deep, *width], (plain * width[0] + width[1]).astype("float32")),
            Case("nn.layer_norm", [deep, *width], (plain + width[1]).astype("float32"), {"scale": False}),
            Case("nn.layer_norm", [x, gamma, beta], inner.astype("float32"), {"axis": 1}),
            Case("nn.instance_norm", [x, gamma, beta], instance.astype("float32"), {"axis": 1}),
            Case("nn.group_norm", [x, gamma, beta], grouped, {"num_groups": 2}),
        ]
    )
    assert "groups" in refused("nn.group_norm", x, gamma, beta, num_groups=4)


def test_group_norm_with_channels_last_takes_what_is_behind_the_channels() -> None:
    """Relay reduces the channels of a group and the axes behind them: with channels last, no others."""
    x, gamma, beta = random(2, 3, 6), random(6), random(6)
    wanted = standard(x.reshape(2, 3, 2, 3), (3,)).reshape(2, 3, 6) * gamma + beta
    check([Case("nn.group_norm", [x, gamma, beta], wanted.astype("float32"), {"num_groups": 2, "axis": 2})])


def test_norms_and_softmax() -> None:
    x = random(2, 7, 4, 3)
    tensor = torch.from_numpy(x)
    squares = np.maximum((x.astype(np.float64) ** 2).sum(1, keepdims=True), 1e-3)
    response = F.local_response_norm(tensor, 5, alpha=0.1, beta=0.6, k=1.5).numpy()
    check(
        [
            Case("nn.l2_normalize", [x], (x / np.sqrt(squares)).astype("float32"), {"eps": 1e-3, "axis": (1,)}),
            Case("nn.lrn", [x], response, {"alpha": 0.1, "beta": 0.6, "bias": 1.5}),
            Case("nn.lrn", [np.ascontiguousarray(x.transpose(0, 2, 3, 1))], response.transpose(0, 2, 3, 1),
                 {"alpha": 0.1, "beta": 0.6, "bias": 1.5, "axis": 3}),
            Case("nn.softmax", [x], F.softmax(tensor, -1).numpy()),
            Case("nn.fast_softmax", [x], F.softmax(tensor, 1).numpy(), {"axis": 1}),
            Case("nn.log_softmax", [x], F.log_softmax(tensor, 2).numpy(), {"axis": -2}),
        ]
    )
