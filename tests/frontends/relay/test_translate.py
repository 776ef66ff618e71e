from __future__ import annotations

import gc

import numpy as np
import pytest

import fusion
from fusion.errors import InvalidModelError, ShapeError, UnsupportedOperatorError
from fusion.frontends.imported import ImportedModel
from fusion.frontends.relay import program
from fusion.frontends.relay.parse import parse
from fusion.frontends.relay.translate import translate
from tests.frontends.run import run

X = np.array([[1.0, -2.0], [3.0, -4.0]], np.float32)


def imported(text: str, shapes: dict[str, tuple[int, ...]] | None = None, **params: np.ndarray) -> ImportedModel:
    return translate(parse(text), params, shapes or {})


def test_functions_are_put_in() -> None:
    """Global, local and composite functions; a closure keeps what it saw, a name bound again is another."""
    text = """
def @twice(%f: fn (Tensor[(2, 2), float32]) -> Tensor[(2, 2), float32], %x: Tensor[(2, 2), float32]) {
  %0 = %f(%x);
  %f(%0)
}
def @main(%x: Tensor[(2, 2), float32]) -> (Tensor[(2, 2), float32], (Tensor[(2, 2), float32],)) {
  let %y = add(%x, 1f);
  let %f = fn (%a: Tensor[(2, 2), float32]) -> Tensor[(2, 2), float32] { multiply(%a, %y) };
  let %y = negative(%y);
  let %g = fn (%a: Tensor[(2, 2), float32], Primitive=1, Composite="some.pattern") { nn.relu(%a) };
  let %r = @twice(%f, %x);
  (%g(%r), (%y,))
}
"""
    model = imported(text)
    assert [spec.name for spec in model.outputs] == ["output_0", "output_1"]
    first, second = run(model, X)
    np.testing.assert_allclose(first, np.maximum(X * (X + 1) ** 2, 0))
    np.testing.assert_allclose(second, -(X + 1))


def test_tuples_are_taken_apart() -> None:
    text = """
def @main(%p: (Tensor[(2, 2), float32], (Tensor[(2, 2), float32],)), %w: Tensor[(2, 2), float32]) {
  %0 = %p.1;
  %1 = (%p.0, %0.0);
  %2 = concatenate(%1, axis=1);
  (%1, %2, %w)
}
"""
    model = imported(text, w=X)
    assert [spec.name for spec in model.inputs] == ["p.0", "p.1.0"]
    results = run(model, X, X + 1)
    for got, want in zip(results, [X, X + 1, np.concatenate([X, X + 1], 1), X], strict=True):
        np.testing.assert_array_equal(got, want)


def test_open_dimensions() -> None:
    text = "def @main(%x: Tensor[(?, 2), float32]) -> Tensor[(?, 2), float32] { nn.relu(%x) }"
    assert imported(text, {"x": (3, 2)}).outputs[0].shape == (3, 2)
    for shapes in ({}, {"x": (3, 4)}, {"x": (3,)}, {"x": (3, 2), "y": (1,)}):
        with pytest.raises(ShapeError):
            imported(text, shapes)


def test_shapes_are_computed_while_translating() -> None:
    text = """
def @main(%x: Tensor[(2, 3, 4), float32]) {
  %0 = shape_of(%x, dtype="int64");
  %1 = take(%0, 2, axis=0);
  %2 = expand_dims(multiply(%1, 3i64), axis=0);
  %3 = expand_dims(-1i64, axis=0);
  %4 = (%2, %3);
  %5 = concatenate(%4);
  dyn.reshape(%x, cast(%5, dtype="int32"), newshape=[])
}
"""
    assert imported(text).outputs[0].shape == (12, 2)


IF = """
def @main(%c: bool, %x: Tensor[(2, 2), float32]) {{
  let %y = add(%x, 1f);
  if ({condition}) {{
    let %z = multiply(%y, %y);
    (%z, nn.relu(%x))
  }} else {{
    %1 = negative(%y);
    (%1, %x)
  }}
}}
"""


def test_if_that_the_run_decides() -> None:
    model = imported(IF.format(condition="%c"))
    assert len(model.branches) == 2
    compiled = fusion.compile(IF.format(condition="%c"), threads=1)
    for flag, wanted in ((True, [(X + 1) ** 2, np.maximum(X, 0)]), (False, [-(X + 1), X])):
        results = compiled(np.array(flag), X)
        for got, want in zip(results, wanted, strict=True):
            np.testing.assert_allclose(got, want)


def test_if_that_is_known() -> None:
    model = imported(IF.format(condition="False"))
    assert not model.branches
    np.testing.assert_array_equal(run(model, np.array(True), X)[0], -(X + 1))


def test_if_in_an_if_reads_what_is_around_both() -> None:
    text = """
def @main(%c: bool, %d: bool, %x: Tensor[(2, 2), float32]) {
  let %y = add(%x, 1f);
  let %f = fn (%a: Tensor[(2, 2), float32]) { multiply(%a, %y) };
  if (%c) {
    let %z = negative(%y);
    if (%d) { add(%z, %f(%x)) } else { subtract(%z, %x) }
  } else {
    %y
  }
}
"""
    compiled = fusion.compile(text, threads=1)
    y = X + 1
    for outer, inner, want in ((True, True, -y + X * y), (True, False, -y - X), (False, True, y)):
        np.testing.assert_allclose(compiled(np.array(outer), np.array(inner), X)[0], want)


def test_branches_of_scalars() -> None:
    text = "def @main(%c: bool, %x: Tensor[(2, 2), float32]) { if (%c) { sum(%x) } else { max(%x) } }"
    compiled = fusion.compile(text, threads=1)
    assert [compiled(np.array(flag), X)[0] for flag in (True, False)] == [X.sum(), X.max()]


def test_condition_that_is_no_single_bool() -> None:
    for kind in ("Tensor[(2), bool]", "int32"):
        with pytest.raises(InvalidModelError, match="condition"):
            imported(f"def @main(%c: {kind}, %x: float32) {{ if (%c) {{ %x }} else {{ negative(%x) }} }}")


def test_branches_of_different_types() -> None:
    text = """
def @main(%c: bool, %x: Tensor[(2, 2), float32]) {
  if (%c) { sum(%x) } else { %x }
}
"""
    with pytest.raises(UnsupportedOperatorError, match="branches") as caught:
        imported(text)
    assert "Tensor[(), float32]" in caught.value.why
    assert "line 3" in caught.value.where


def test_missing_operators_are_all_named() -> None:
    text = """
def @helper(%x: Tensor[(2), float32]) { nn.bar(%x) }
def @unused(%x: Tensor[(2), float32]) { nn.never(%x) }
def @main(%x: Tensor[(2), float32]) {
  %0 = nn.foo(%x);
  %1 = nn.foo(%0);
  %2 = nn.relu(%1);
  vm.invoke_tvm_op(@helper(%2))
}
"""
    with pytest.raises(UnsupportedOperatorError) as caught:
        imported(text)
    what = caught.value.what
    assert "4 calls" in what
    assert "nn.bar (1 call, first at line 2, column" in what
    assert "nn.foo (2 calls, first at line 5, column" in what
    assert "vm.invoke_tvm_op (1 call" in what
    assert "nn.never" not in what
    assert "nn.relu" not in what


def test_refusals_name_the_place() -> None:
    with pytest.raises(UnsupportedOperatorError) as caught:
        imported("def @main(%x: Tensor[(2, 3), float32]) {\n  nn.dense(%x, %x, units=None, out_dtype=7)\n}")
    assert caught.value.where.startswith("nn.dense, line 2")
    assert caught.value.why == "attribute out_dtype is 7, not a string"
    with pytest.raises(UnsupportedOperatorError, match="add cannot be translated"):
        imported("def @main(%x: Tensor[(2, 3), float32], %y: Tensor[(4), float32]) { add(%x, %y) }")


def test_a_refusal_says_nothing_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnsupportedOperatorError):
        imported("def @main(%c: bool, %x: float32) { if (%c) { %x } else { take(nn.relu(%x), %x) } }")
    gc.collect()
    assert capfd.readouterr().err == ""


def test_recursion() -> None:
    over = """
def @loop(%x: Tensor[(2), float32]) -> Tensor[(2), float32] { @loop(%x) }
def @main(%x: Tensor[(2), float32]) { @loop(%x) }
"""
    local = """
def @main(%x: Tensor[(2), float32]) {
  let %f = fn (%a: Tensor[(2), float32]) -> Tensor[(2), float32] { %f(%a) };
  %f(%x)
}
"""
    for text in (over, local):
        with pytest.raises(UnsupportedOperatorError, match="calls itself"):
            imported(text)


def test_a_loop_of_known_length_is_unrolled() -> None:
    text = """
def @loop(%i: int32, %x: Tensor[(2), float32]) -> Tensor[(2), float32] {
  if (less(%i, 5)) { @loop(add(%i, 1), add(%x, 2f)) } else { %x }
}
def @main(%x: Tensor[(2), float32]) { @loop(0, %x) }
"""
    np.testing.assert_array_equal(run(imported(text), X[0])[0], X[0] + 10)


def test_a_loop_of_unknown_length_is_refused() -> None:
    text = """
def @loop(%x: Tensor[(2), float32]) -> Tensor[(2), float32] {
  if (less(sum(%x), 5f)) { @loop(add(%x, 2f)) } else { %x }
}
def @main(%x: Tensor[(2), float32]) { @loop(%x) }
"""
    with pytest.raises(UnsupportedOperatorError, match="calls itself"):
        imported(text)


def test_long_chains_and_deep_nests() -> None:
    lines = [f"  %{index + 1} = negative(%{index});" for index in range(3000)]
    text = "def @main(%x: Tensor[(2), float32]) {\n  %0 = negative(%x);\n" + "\n".join(lines) + "\n  %3000\n}"
    assert imported(text).outputs[0].shape == (2,)
    functions = "\n".join(
        f"def @f{index}(%x: Tensor[(2), float32]) {{ @f{index + 1}(%x) }}" for index in range(2000)
    )
    last = "def @f2000(%x: Tensor[(2), float32]) { %x }"
    deep = f"def @main(%x: Tensor[(2), float32]) {{ @f0(%x) }}\n{functions}\n{last}"
    with pytest.raises(UnsupportedOperatorError, match="too deeply"):
        imported(deep)


def test_types_that_contradict() -> None:
    with pytest.raises(InvalidModelError, match="result") as caught:
        imported("def @main(%x: Tensor[(2, 3), float32]) -> Tensor[(3, 2), float32] { nn.relu(%x) }")
    assert "Tensor[(2, 3), float32]" in caught.value.why
    with pytest.raises(InvalidModelError, match="%a"):
        imported(
            "def @f(%a: Tensor[(3), float32]) { %a }\ndef @main(%x: Tensor[(2), float32]) { @f(%x) }"
        )
    with pytest.raises(InvalidModelError, match="2 parameters is called with 1"):
        imported(
            "def @f(%a: Tensor[(2), float32], %b: Tensor[(2), float32]) { %a }\n"
            "def @main(%x: Tensor[(2), float32]) { @f(%x) }"
        )
    with pytest.raises(InvalidModelError, match="field"):
        imported("def @main(%x: Tensor[(2), float32]) { let %y = (%x, %x); %y.2 }")
    with pytest.raises(InvalidModelError, match="function"):
        imported("def @main(%x: Tensor[(2), float32]) { fn (%a: Tensor[(2), float32]) { %a } }")


def test_weights_with_nan() -> None:
    found = imported("def @main(%w: Tensor[(2), float32]) { %w }", w=np.array([1, np.nan], np.float32))
    assert found.notes == ("weight 'w' holds NaN, 1 of 2 elements",)


CALLS = "def @f{0}(%c: bool, %x: float32) {{ %0 = @f{1}(%c, %x); @f{1}(%c, %0) }}"
CLOSURES = "let %f{1} = fn (%y: float32) {{ %f{0}(%f{0}(%y)) }};"
CHOICES = "def @f{0}(%c: bool, %x: float32) {{ if (%c) {{ @f{1}(%c, %x) }} else {{ @f{1}(%c, negative(%x)) }} }}"
LAST = "\ndef @f40(%c: bool, %x: float32) { nn.relu(%x) }\n def @main(%c: bool, %x: float32) { @f0(%c, %x) }"


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(CALLS.format(at, at + 1) for at in range(40)) + LAST,
        "\n".join(CHOICES.format(at, at + 1) for at in range(40)) + LAST,
        "def @main(%x: float32) { let %f0 = fn (%y: float32) { nn.relu(%y) };\n"
        + "\n".join(CLOSURES.format(at, at + 1) for at in range(40))
        + "%f40(%x) }",
    ],
    ids=["functions", "branches", "closures"],
)
def test_what_doubles_with_every_level_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_MOST_STEPS", 2_000)
    with pytest.raises(UnsupportedOperatorError, match="more than 2,000") as caught:
        imported(text)
    assert "line" in caught.value.where


@pytest.mark.parametrize("first", ["(%x, %x)", "()"])
def test_tuples_that_double_with_every_level_are_refused(first: str) -> None:
    chain = "\n".join(f"%{at} = (%{at - 1}, %{at - 1});" for at in range(1, 60))
    with pytest.raises(UnsupportedOperatorError, match="parts"):
        imported(f"def @main(%x: float32) {{ %0 = {first};\n{chain} (%x, %59) }}")
