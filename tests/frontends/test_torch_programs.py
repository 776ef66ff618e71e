"""What torch programs take and return: examples of all kinds, names, open dimensions, state and weights."""

from __future__ import annotations

import collections
import dataclasses
import re
from typing import Any

import numpy as np
import pytest

import fusion
from fusion.errors import InputError, InvalidModelError, OptionError, ShapeError, UnsupportedOperatorError
from fusion.frontends import open_model, read_signature
from fusion.frontends.torch.converters import CONVERTERS
from tests.module import small_models

torch = pytest.importorskip("torch")

Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Scores:
    """What a model of some library returns."""

    logits: Any
    hidden: Any


torch.export.register_dataclass(Scores)


class Everything(torch.nn.Module):  # type: ignore[misc]
    """Takes and returns what Python has."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: Any, pairs: Any, flag: bool = True, times: int = 2, nothing: Any = None, *, mask: Any) -> Any:
        """Return containers in containers."""
        y = self.linear(x) * times + (pairs["first"] if flag else pairs["others"][0])
        return {
            "y": y,
            "parts": (y + 1, [y + 2]),
            "scores": Scores(y * mask, y - 1),
            "pair": Pair(y * 2, x),
            "nothing": nothing,
            "times": times,
        }


X = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
OTHERS = {"first": torch.ones(4), "others": [torch.zeros(4)]}


def test_examples_and_results_of_all_kinds() -> None:
    module = Everything()
    compiled = fusion.compile((module, (X, OTHERS, False, 3, None), {"mask": torch.full((4,), 2.0)}))
    assert [spec.name for spec in compiled.inputs] == ["x", "pairs_first", "pairs_others_0", "mask"]
    names = ["y", "parts_0", "parts_1_0", "scores_logits", "scores_hidden", "pair_left", "pair_right"]
    assert [spec.name for spec in compiled.outputs] == names
    found = compiled(X, OTHERS["first"], OTHERS["others"][0], torch.full((4,), 2.0))
    with torch.no_grad():
        y = (module.linear(X) * 3).numpy()
    for value, expected in zip(found, (y, y + 1, y + 2, y * 2, y - 1, y * 2, X.numpy()), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)
    assert "'times', always 3, is left out" in compiled.explain()


@pytest.mark.parametrize(
    ("examples", "names"),
    [
        (({"x": X},), ["x"]),
        ((X,), ["x"]),
        (([X],), ["x"]),
        (((), {"x": X}), ["x"]),
        (((X,), None), ["x"]),
    ],
)
def test_examples_by_keyword_and_alone(examples: Any, names: list[str]) -> None:
    class Identity(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x

    inputs, outputs = read_signature((Identity(), *examples))
    assert [spec.name for spec in inputs] == names
    assert [spec.name for spec in outputs] == ["output"]


def test_an_input_and_an_alias_can_be_results() -> None:
    class Alias(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            y = x + 1
            return x, y, y, y.view(-1)

    found = fusion.compile((Alias(), X))(X)
    for value, expected in zip(found, Alias()(X), strict=True):
        np.testing.assert_array_equal(value, expected.numpy())


def test_open_dimensions_take_any_size_of_their_range() -> None:
    class Rows(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x: Any, bias: Any) -> Any:
            rows = self.linear(x) + bias[:, None]
            return rows.reshape(x.shape[0] * 2, 2) * x.shape[0], torch.arange(x.shape[0])

    module = Rows()
    rows = torch.export.Dim("rows", max=9)
    dims = {"x": {0: rows}, "bias": {0: rows}}
    compiled = fusion.compile((module, (X, X[:, 0])), dynamic_shapes=dims)
    assert [spec.shape for spec in compiled.inputs] == [(None, 4), (None,)]
    program = torch.export.export(module, (X, X[:, 0]), dynamic_shapes=dims)
    for form, count in ((compiled, 3), (compiled, 1), (fusion.compile(program, shapes={"x": (5, 4), "bias": (5,)}), 5)):
        x = torch.randn(count, 4)
        for value, expected in zip(form(x, x[:, 1].contiguous()), module(x, x[:, 1]), strict=True):
            np.testing.assert_allclose(value, expected.detach().numpy(), rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError, match="'rows' is 2 in axis 0 of input 'x' and 3 in axis 0"):
        compiled(X, torch.ones(3))
    with pytest.raises(ShapeError, match="exported for 0 to 9"):
        compiled(torch.ones(10, 4), torch.ones(10))


class Attention(torch.nn.Module):  # type: ignore[misc]
    """One layer of an encoder, over words of which a mask leaves some out."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(50, 32)
        self.norm = torch.nn.LayerNorm(32)
        self.parts = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(3))

    def forward(self, ids: Any, mask: Any) -> Any:
        x = self.norm(self.words(ids))
        query, key, value = (part(x).view(*x.shape[:2], 4, 8).transpose(1, 2) for part in self.parts)
        kept = mask[:, None, None, :] > 0
        found = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=kept)
        return found.transpose(1, 2).reshape(x.shape)


def test_one_tensor_given_for_two_inputs_is_an_example_of_both() -> None:
    module = Attention().eval()
    ids, mask = torch.randint(0, 50, (2, 5)), torch.ones((2, 5), dtype=torch.int64)
    mask[1, 2:] = 0
    (found,) = fusion.compile((module, (ids, ids)))(ids, mask)
    np.testing.assert_allclose(found, module(ids, mask).detach().numpy(), rtol=1e-5, atol=1e-5)
    assert not np.allclose(found, module(ids, ids).detach().numpy(), atol=1e-3)


def test_an_input_that_has_the_name_of_a_builtin_is_taken_at_all_sizes() -> None:
    """`torch.nn.Sequential` calls its own `input`, of which torch makes `input_1` in a copy of the graph."""
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()).eval()
    program = torch.export.export(module, (torch.zeros(2, 4),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    compiled = fusion.compile(program, threads=1)
    for rows in (3, 5_000):
        x = torch.randn(rows, 4)
        np.testing.assert_allclose(compiled(x)[0], module(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    assert [form.opened is not None for form in compiled.specializations] == [True]


def test_named_dimensions_have_one_form_for_all_sizes() -> None:
    module = Attention().eval()
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length", max=60)
    dims = {"ids": {0: batch, 1: length}, "mask": {0: batch, 1: length}}
    ids = torch.zeros((2, 5), dtype=torch.int64)
    compiled = fusion.compile((module, (ids, ids)), dynamic_shapes=dims, threads=1)
    assert [spec.declared for spec in compiled.inputs] == [["batch", "length"]] * 2
    assert [spec.declared for spec in compiled.outputs] == [["batch", "length", 32]]
    compiled.finish()
    (form,) = compiled.specializations
    assert form.opened is not None
    assert form.opened.describe_bounds() == "batch 0 to 65536, length 1 to 60"
    for shape in ((1, 1), (2, 5), (3, 60), (1, 17), (33, 2), (0, 3)):
        ids, mask = torch.randint(0, 50, shape), torch.ones(shape, dtype=torch.int64)
        mask[:, shape[1] // 2 + 1 :] = 0
        mask[1:2] = 0  # all words: its results are zeros
        (found,) = compiled(ids, mask)
        np.testing.assert_allclose(found, module(ids, mask).detach().numpy(), rtol=1e-5, atol=1e-5)
    assert compiled.specializations == (form,)
    with pytest.raises(InputError, match="'length' is 5 in axis 1 of input 'ids' and 4 in axis 1"):
        compiled(torch.zeros((2, 5), dtype=torch.int64), torch.zeros((2, 4), dtype=torch.int64))


def test_dimensions_without_a_name_are_those_of_the_first_input() -> None:
    dims = {"ids": {0: torch.export.Dim.AUTO, 1: torch.export.Dim("length")}, "mask": (torch.export.Dim.AUTO,) * 2}
    ids = torch.zeros((2, 5), dtype=torch.int64)
    program = torch.export.export(Attention(), (ids, ids), dynamic_shapes=dims)
    for model, length in (((Attention(), (ids, ids)), "length"), (program, "ids_1")):
        given = dims if length == "length" else None
        compiled = fusion.compile(model, dynamic_shapes=given, threads=1)
        assert [spec.declared for spec in compiled.inputs] == [["ids_0", length]] * 2


def test_dynamic_shapes_that_do_not_fit() -> None:
    class Flat(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x.reshape(2, 2, 2) + 1

    with pytest.raises(OptionError, match="with these dynamic_shapes"):
        open_model((Flat(), X), dynamic_shapes={"x": {0: torch.export.Dim("n")}})
    program = torch.export.export(Flat(), (X,))
    for model in (program, small_models.mlp()):
        with pytest.raises(OptionError, match="dynamic_shapes= is of no use"):
            open_model(model, dynamic_shapes={"x": None})


class Counter(torch.nn.Module):  # type: ignore[misc]
    """Counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        """Return x and how often it was called before."""
        self.count += 1
        return x + self.count


def test_a_buffer_that_is_changed_is_noted_and_left() -> None:
    compiled = fusion.compile((Counter(), X))
    for _ in range(2):
        np.testing.assert_allclose(compiled(X)[0], X.numpy() + 1)
    assert "the buffer 'count' keeps the value" in compiled.explain()


def test_a_cache_is_left_out_with_a_note() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=11, n_positions=8, n_embd=8, n_layer=1, n_head=2)
    model = transformers.GPT2Model(config).eval()
    ids = torch.tensor([[1, 2, 3]])
    compiled = fusion.compile((model, (), {"input_ids": ids, "use_cache": True}))
    assert [spec.name for spec in compiled.outputs] == ["last_hidden_state"]
    # The name is torch's of the output's field, or that of the variable in the model: versions of both differ.
    assert re.search(r"'\w+', a DynamicCache, is left out", compiled.explain())
    with torch.no_grad():
        expected = model(ids).last_hidden_state.numpy()
    np.testing.assert_allclose(compiled(ids)[0], expected, rtol=1e-4, atol=1e-5)


def test_weights_however_they_lie() -> None:
    class Weights(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.turned = torch.nn.Parameter(torch.arange(16.0).reshape(4, 4).t())
            self.register_buffer("spread", torch.tensor([2.0]).expand(4))
            self.register_buffer("unsaved", torch.arange(8.0)[::2], persistent=False)
            self.shared = self.turned

        def forward(self, x: Any) -> Any:
            return (x @ self.turned) * self.spread + self.unsaved + self.shared[0] + torch.tensor([1.0, 2, 3, 4])

    module = Weights()
    compiled = fusion.compile((module, X))
    with torch.no_grad():
        expected = module(X).numpy()
        module.turned.zero_()
    np.testing.assert_allclose(compiled(X)[0], expected, rtol=1e-5, atol=1e-5)


def _linear(weight: Any) -> Any:
    class Linear(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", weight)

        def forward(self, x: Any) -> Any:
            return x + self.weight

    return Linear()


def test_weights_without_values(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises((InvalidModelError, UnsupportedOperatorError)):
        fusion.compile((_linear(torch.ones(4, device="meta")), X))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("model", [lambda: Counter(), lambda: (Counter(),), lambda: (Counter(), (X,), [X])])
def test_what_is_not_given_as_it_should_be(model: Any) -> None:
    with pytest.raises(OptionError):
        open_model(model())


class Expanding(torch.nn.Module):  # type: ignore[misc]
    """Expands to a number of rows that only a value tells, to another symbol, and to the shape that there is."""

    def forward(self, x: Any, y: Any) -> Any:
        found = x.nonzero().shape[0]
        return torch.zeros(1, 1).expand(found, 1), y[:, :1].expand(-1, x.shape[0]), y.expand(-1, y.shape[1])


def test_expanded_sizes_are_compared_without_guards() -> None:
    class Importer:
        retrieve_args = staticmethod(lambda node: ["as it is"])
        _expand = staticmethod(lambda node: "expanded")

    n, rows, columns = (torch.export.Dim(name, min=2, max=40) for name in ("n", "rows", "columns"))
    shapes = {"x": {0: n}, "y": {0: rows, 1: columns}}
    program = torch.export.export(Expanding(), (torch.ones(3), torch.ones(3, 3)), dynamic_shapes=shapes)
    nodes = [node for node in program.graph.nodes if node.op == "call_function" and "expand" in str(node.target)]
    guards = nodes[0].meta["val"].fake_mode.shape_env.guards
    before = len(guards)
    made = [CONVERTERS["expand.default"](node, Importer()) for node in nodes]
    assert made == ["expanded", "expanded", "as it is"]
    assert len(guards) == before
