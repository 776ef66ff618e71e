"""A torch program with open sizes is decomposed once: at each choice of sizes it is what a trace there gives."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import sympy
import torch

from fusion.declined import Declined
from fusion.errors import ShapeError
from fusion.frontends.torch import TorchModel, import_torch, open_torch
from fusion.frontends.torch import model as torch_model
from fusion.frontends.torch.to_relax import decompose
from fusion.frontends.torch.traced_sizes import TracedSizes

Dim = torch.export.Dim


class Encoder(torch.nn.Module):  # type: ignore[misc]
    """Attention with positions, and what follows from sizes as numbers and floats."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = torch.nn.Embedding(20, 16), torch.nn.Embedding(64, 16)
        self.query, self.value = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)

    def forward(self, ids: Any) -> Any:
        batch, length = ids.shape
        x = self.words(ids) + self.places(torch.arange(length)) / length**0.5
        query, value = (each(x).view(batch, length, 2, 8).transpose(1, 2) for each in (self.query, self.value))
        found = torch.nn.functional.scaled_dot_product_attention(query, query, value)
        return found.transpose(1, 2).reshape(batch * length, 16), x.mean(1) * (2 * batch + 1)


class Windows(torch.nn.Module):  # type: ignore[misc]
    """Windows over a picture, whose sizes are divided, and what is joined with it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 4, 3, stride=2, padding=1)

    def forward(self, x: Any) -> Any:
        found = torch.nn.functional.max_pool2d(self.stem(x), 2)
        return torch.cat([found.flatten(2), x.flatten(2)[:, :1].expand(-1, 4, -1)], 2).softmax(-1)


ENCODER = Encoder().eval(), torch.zeros((2, 5), dtype=torch.int64), {0: Dim("batch"), 1: Dim("length", max=60)}
PICTURE = Windows().eval(), torch.zeros((2, 3, 20, 24)), {0: Dim("batch"), 2: 4 * Dim("height"), 3: 4 * Dim("width")}


def _opened(module: Any, example: Any, dims: Any) -> TorchModel:
    return open_torch((module, (example,)), (dims,))


def _lines(program: Any) -> Iterator[tuple[str, ...]]:
    for node in program.graph.nodes:
        if node.op == "call_function":
            values = [node.meta["val"]] if isinstance(node.meta["val"], torch.Tensor) else node.meta["val"]
            yield str(node.target), *(f"{tuple(value.shape)} {value.dtype}" for value in values)


@pytest.mark.parametrize(
    ("given", "shapes"), [(ENCODER, [(3, 7), (2, 60)]), (PICTURE, [(3, 3, 12, 32)])], ids=["text", "picture"]
)
def test_it_is_what_a_trace_at_these_sizes_gives(given: tuple[Any, ...], shapes: list[tuple[int, ...]]) -> None:
    model = _opened(*given)
    assert model.symbolic is not None
    for shape in shapes:
        traced = torch_model._make_static(model, [shape])
        assert [*_lines(model.symbolic.at([shape]))] == [*_lines(decompose(traced))]
    with pytest.raises(Declined, match="traced for sizes from 2"):
        model.symbolic.at([(0, *shapes[0][1:])])


class Even(torch.nn.Module):  # type: ignore[misc]
    """Computes something else of an even number of rows."""

    def forward(self, x: Any) -> Any:
        return x + 1 if x.shape[0] % 2 == 0 else x - 1


def test_sizes_of_which_the_trace_does_not_hold_are_refused() -> None:
    model = _opened(Even(), torch.zeros(4, 3), {0: Dim.AUTO})
    assert import_torch(model, {"x": (6, 3)}).outputs[0].shape == (6, 3)
    with pytest.raises(ShapeError, match=r"holds where Eq\(Mod\(s\d+, 2\), 0\)"):
        import_torch(model, {"x": (5, 3)})


class Shifted(torch.nn.Module):  # type: ignore[misc]
    """Rows that are as many behind one another as a division of them by their number leaves."""

    def forward(self, x: Any) -> Any:
        rows = x.shape[0]
        return x[: (2 * rows - 1) % rows + 1]


def test_a_guard_that_divides_by_a_size_of_0_does_not_hold_there() -> None:
    """It was an internal error."""
    model = _opened(Shifted(), torch.zeros(4, 3), {0: Dim.AUTO})
    assert import_torch(model, {"x": (6, 3)}).outputs[0].shape == (6, 3)
    with pytest.raises(ShapeError):
        import_torch(model, {"x": (0, 3)})


def test_imports_trace_nothing_but_sizes_of_0(monkeypatch: pytest.MonkeyPatch) -> None:
    model, make_static = _opened(*ENCODER), torch_model._make_static
    traced: list[Any] = []
    monkeypatch.setattr(torch_model, "_make_static", lambda *given: traced.append(given[1]) or make_static(*given))
    for batch, length in ((2, 5), (1, 1), (3, 17), (0, 5)):
        outputs = import_torch(model, {"ids": (batch, length)}).outputs
        assert [spec.shape for spec in outputs] == [(batch * length, 16), (batch, 16)]
    assert traced == [[(0, 5)]]


def test_a_size_that_a_division_leaves_tells_no_symbol() -> None:
    size = sympy.Symbol("s", integer=True, positive=True)
    env = SimpleNamespace(replace=lambda dim: dim)
    assert TracedSizes(((4 * size + 2, size),), env).at([(14, 3)]) == {size: 3}
    for half in (size // 2, size - size % 5):
        with pytest.raises(Declined):
            TracedSizes(((half,),), env).at([(3,)])
