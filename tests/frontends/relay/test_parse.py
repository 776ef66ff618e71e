"""The tree of each construct of Relay's text form, and where errors say they are."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np
import pytest

from fusion.errors import FusionError, RelayTextError, UnsupportedOperatorError
from fusion.frontends.relay.parse import parse
from fusion.frontends.relay.syntax import (
    Binding,
    Constant,
    Expression,
    Field,
    Function,
    FunctionCall,
    FunctionType,
    GlobalReference,
    If,
    LetBlock,
    NamedType,
    OperatorCall,
    OperatorReference,
    Position,
    Reference,
    TensorType,
    TupleOf,
    TupleType,
    Type,
    Value,
)
from tests.frontends.relay import shared_models

F23 = "Tensor[(2, 3), float32]"


def main(text: str) -> Function:
    return parse(text).functions["main"]


def body(code: str) -> LetBlock:
    """Return the body of a `main` that takes %x, %y and the tuple %t."""
    return main(f"def @main(%x: {F23}, %y: {F23}, %t: ({F23}, ({F23},))) {{ {code} }}").body


def result(code: str) -> Expression:
    return body(code).result


def attributes(code: str) -> Mapping[str, Value]:
    call = result(f"f(%x, {code})")
    assert isinstance(call, OperatorCall)
    return call.attributes


def refused(text: str) -> FusionError:
    with pytest.raises(FusionError) as caught:
        parse(text)
    return caught.value


def place(error: FusionError) -> Position:
    """Return line and column of the caret under the line that an error shows, after a look at the words."""
    words, shown, caret = error.where.split("\n")
    line, column = (int(part.split()[1]) for part in words.split(","))
    assert caret.endswith("^")
    assert len(caret) <= len(shown) + 1
    return Position(line, column)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("float32", TensorType((), "float32")),
        ("bool", TensorType((), "bool")),
        ("Tensor[(2, 3), float32]", TensorType((2, 3), "float32")),
        ("Tensor[(16), bfloat16]", TensorType((16,), "bfloat16")),
        ("Tensor[(16,), uint8]", TensorType((16,), "uint8")),
        ("Tensor[(), int64]", TensorType((), "int64")),
        ("Tensor[(?, 3i64), float16]", TensorType((None, 3), "float16")),
        ("()", TupleType(())),
        ("(float32,)", TupleType((TensorType((), "float32"),))),
        ("(float32, (int8, bool))", TupleType((TensorType((), "float32"), TupleType((TensorType((), "int8"),
                                                                                      TensorType((), "bool")))))),
        ("fn (int8) -> bool", FunctionType((TensorType((), "int8"),), TensorType((), "bool"))),
        ("fn () -> ()", FunctionType((), TupleType(()))),
        ("List[int8]", NamedType("List", (TensorType((), "int8"),))),
        ("_", NamedType("_")),
    ],
)  # fmt: skip
def test_types(text: str, kind: Type) -> None:
    found = main(f"def @main(%x: {text}) -> {text} {{ %x }}")
    assert found.parameters[0].type == kind
    assert found.result_type == kind


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", np.int32(1)), ("-5", np.int32(-5)), ("-5i64", np.int64(-5)), ("7i16", np.int16(7)),
        ("9223372036854775807", np.int64(2**63 - 1)), ("2147483648", np.int64(2**31)),
        ("1f", np.float32(1)), ("0.1f", np.float32(0.1)), ("1e-05f", np.float32(1e-5)),
        ("-1.5e+10f", np.float32(-1.5e10)),
        ("3f16", np.float16(3)), ("1.5f64", np.float64(1.5)), ("inff", np.float32(np.inf)),
        ("-inff", np.float32(-np.inf)), ("inff64", np.float64(np.inf)), ("nanf", np.float32(np.nan)),
        ("True", np.bool_(True)), ("False", np.bool_(False)),
    ],
)  # fmt: skip
def test_numbers(text: str, value: np.generic) -> None:
    constant = result(text)
    assert isinstance(constant, Constant)
    assert constant.array.dtype == value.dtype
    np.testing.assert_array_equal(constant.array, value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1), ("-1", -1), ("5i64", 5), ("1e-05f", 1e-05), ("0f", 0.0), ("True", True), ("None", None),
        ("nullptr", None), ('"NCHW"', "NCHW"), (r'"a\"b\\c\n\x41\xC3\xA9"', 'a"b\\c\nA\xe9'), ("'main'", "main"),
        ("NCHW", "NCHW"),
        ("[]", ()), ("[1, 1]", (1, 1)), ("[[0, 0], [1, 2]]", ((0, 0), (1, 2))), ("(1, 2)", (1, 2)), ("[?, 3]",
        (None, 3)),
        ("[1, 2,]", (1, 2)), ('{a=1, "b c"=[2]}', {"a": 1, "b c": (2,)}), ("{}", {}),
    ],
)  # fmt: skip
def test_attributes(text: str, value: Value) -> None:
    assert attributes(f"key={text}") == {"key": value}
    assert type(attributes(f"key={text}")["key"]) is type(value)


def test_attributes_may_have_the_names_of_words() -> None:
    names = ("type", "match", "let", "def", "if", "else", "fn", "free_var", "Tensor", "T.schedulable")
    assert attributes(", ".join(f"{name}=1" for name in names)) == dict.fromkeys(names, 1)


def test_a_call() -> None:
    call = result("nn.conv2d(%x, %y, padding=[1, 1])")
    assert isinstance(call, OperatorCall)
    assert call.operator == "nn.conv2d"
    assert [type(argument) for argument in call.arguments] == [Reference, Reference]
    assert call.attributes == {"padding": (1, 1)}
    assert call.position.line == 1


def test_comments_are_left_out() -> None:
    call = result("/* a ** / b */ nn.relu(%x /* ty=Tensor[(2, 3), float32] span=aten::relu_0:0:0 */) // }\n")
    assert isinstance(call, OperatorCall)


def test_tuples_and_fields() -> None:
    assert isinstance(result("()"), TupleOf)
    pair = result("(%x, %y,)")
    assert isinstance(pair, TupleOf)
    assert len(pair.fields) == 2
    single = result("(%x,)")
    assert isinstance(single, TupleOf)
    assert len(single.fields) == 1
    assert isinstance(result("(%x)"), Reference)
    nested = result("%0 = %t; %0.1.0")
    assert isinstance(nested, Field)
    assert nested.index == 0
    assert isinstance(nested.value, Field)
    assert (nested.value.index, nested.value.value) == (1, Reference(nested.position, "0"))
    of_call = result("split(%x).1")
    assert isinstance(of_call, Field)


def test_a_name_with_dots_is_the_longest_that_is_bound() -> None:
    parameters = f"%x: {F23}, %x.0: {F23}, %layer1.0.conv::weight: ({F23},)"
    found = main(f"def @main({parameters}) {{ (%x.0, %x.1, %layer1.0.conv::weight.0) }}").body.result
    assert isinstance(found, TupleOf)
    named, first, second = found.fields
    assert isinstance(named, Reference)
    assert named.name == "x.0"
    assert isinstance(first, Field)
    assert (first.index, first.value) == (1, Reference(first.position, "x"))
    assert isinstance(second, Field)
    assert (second.index, second.value) == (0, Reference(second.position, "layer1.0.conv::weight"))


def test_bindings() -> None:
    block = body(f"%0 = nn.relu(%x); let %v: {F23} = tanh(%0); nn.relu(%y); let %v = exp(%v); %v")
    assert [binding.name for binding in block.bindings] == ["0", "v", "v"]
    assert block.bindings[0].position == Position(1, block.bindings[0].position.column)
    assert isinstance(block.result, Reference)


def test_parentheses_around_bindings_are_a_block_of_their_own() -> None:
    block = body("%0 = (\n let %v = exp(%x);\n tanh(%v)\n); add(%0, %y)")
    inner = block.bindings[0].value
    assert isinstance(inner, LetBlock)
    assert [binding.name for binding in inner.bindings] == ["v"]
    assert refused(f"def @main(%x: {F23}) {{ %0 = (let %v = exp(%x); %v); %v }}").what == "nothing binds %v"


def test_functions() -> None:
    text = f"fn [A](%a: {F23}, %b, Primitive=1, Composite=\"dnnl.conv\", Compiler=None) -> {F23} {{ add(%a, %b) }}"
    call = result(f"%0 = {text}; %0(%x, %y, attrs_type_key=\"relay.attrs.X\")")
    assert isinstance(call, FunctionCall)
    assert call.attributes == {"attrs_type_key": "relay.attrs.X"}
    function = body(f"%0 = {text}; %0").bindings[0].value
    assert isinstance(function, Function)
    assert [parameter.name for parameter in function.parameters] == ["a", "b"]
    assert function.parameters[1].type is None
    assert function.attributes == {"Primitive": 1, "Composite": "dnnl.conv", "Compiler": None}
    assert function.result_type == TensorType((2, 3), "float32")
    assert isinstance(result("(fn (%a) { %a })(%x)"), FunctionCall)
    assert isinstance(result("let %f = fn (%n) { fn (%m) { add(%n, %m) } }; %f(%x)(%y)"), FunctionCall)
    assert isinstance(result("let %f = fn (%n) { %f(%n) }; %f(%x)"), FunctionCall)


def test_global_functions() -> None:
    module = parse(f"def @main(%x: {F23}) {{ @f(%x) }}\n\ndef @f(%x: {F23}) {{ %0 = exp(%x); %0 }}")
    assert list(module.functions) == ["main", "f"]
    call = module.functions["main"].body.result
    assert isinstance(call, FunctionCall)
    assert isinstance(call.function, GlobalReference)
    assert call.function.name == "f"


def test_a_function_alone_is_main() -> None:
    assert main(f'#[version = "0.0.5"]\nfn (%x: {F23}) {{ %x }}').position == Position(2, 1)


def test_an_operator_as_an_argument() -> None:
    call = result("map(%x, nn.relu)")
    assert isinstance(call, OperatorCall)
    assert isinstance(call.arguments[1], OperatorReference)


def test_if() -> None:
    found = result("if (%x) { %0 = exp(%y); %0 } else { %y }")
    assert isinstance(found, If)
    assert isinstance(found.then.bindings[0], Binding)
    assert isinstance(found.otherwise.result, Reference)


def test_what_both_branches_share_is_copied() -> None:
    """The printer defines %1 and %2 in the first branch only."""
    code = "%0 = if (%x) { %1 = exp(%y); %2 = add(%1, %1); %2 } else { tanh(%2) }; add(%0, %1)"
    block = body(code)
    assert [binding.name for binding in block.bindings] == ["0", "1"]
    choice = block.bindings[0].value
    assert isinstance(choice, If)
    assert [binding.name for binding in choice.otherwise.bindings] == ["1", "2"]


def test_copies_in_copies_end_soon() -> None:
    code = "%1 = exp(%y); %1"
    for number in range(2, 40):
        code = f"%{number} = if (%x) {{ {code} }} else {{ %{number - 1} }}; %{number}"
    started = time.process_time()
    error = refused(f"def @main(%x: bool, %y: float32) {{ {code} }}")
    assert error.what == "branches share too much that stands in others"
    assert time.process_time() - started < 5


def test_what_needs_a_name_of_a_branch_is_not_copied() -> None:
    text = f"def @main(%x: {F23}) {{ if (%x) {{ let %v = exp(%x); %1 = add(%v, %v); %1 }} else {{ %1 }} }}"
    assert refused(text).what == "%1 is not seen here, nor is %v, which it refers to"


@pytest.mark.parametrize(
    ("code", "operators"),
    [
        ("%x + %y * %x", ["add", "multiply"]), ("(%x + %y) * %x", ["multiply", "add"]),
        ("%x - 1f", ["subtract"]),
        ("%x / %y < %x == %y", ["equal", "less", "divide"]), ("%x >= %y", ["greater_equal"]),
        ("%x != %y", ["not_equal"]),
        ("%x <= %y", ["less_equal"]), ("%x > %y", ["greater"]),
    ],
)  # fmt: skip
def test_operators_between_operands(code: str, operators: list[str]) -> None:
    found, work = [], [result(code)]
    while work:
        node = work.pop(0)
        if isinstance(node, OperatorCall):
            found.append(node.operator)
            work = [*node.arguments, *work]
    assert found == operators


def test_positions() -> None:
    block = main(f"def @main(%x: {F23}) {{\n  %0 = nn.relu(%x);\n  tanh(\n    %0\n  )\n}}").body
    assert block.bindings[0].position == Position(2, 3)
    assert block.bindings[0].value.position == Position(2, 8)
    assert block.result.position == Position(3, 3)
    assert isinstance(block.result, OperatorCall)
    assert block.result.arguments[0].position == Position(4, 5)


@pytest.mark.parametrize(
    ("text", "line", "column", "what"),
    [
        ("def @main(%x: float32) {\n  nn.relu(%x %x)\n}", 2, 14, "`%x` cannot stand here"),
        ("def @main(%x: float32) {\n  nn.relu(%x\n", 2, 13, "the text ends here"),
        ("def @main(%x: float32) {\n  ~\n}", 2, 3, "this character has no meaning"),
        ("def @main(%x: float32) {\n  %1\n}", 2, 3, "nothing before binds %1"),
        ("def @main(%x: float32) {\n  %y.0\n}", 2, 3, "nothing binds %y.0"),
        ("def @main(%x: float32) {\n  @g(%x)\n}", 2, 3, "nothing defines @g"),
        ("def @main(%x: float32) { %x }\ndef @main(%x: float32) { %x }", 2, 5, "a second function is called @main"),
        ("def @main(%x: float32,\n %x: float32) { %x }", 2, 2, "a second parameter is called %x"),
        ("def @main(%x: float32) { %0 = %x;\n %0 = %x; %0 }", 2, 2, "%0 is bound twice"),
        ("def @main(%x: float32) {\n f(%x, a=1, a=2) }", 2, 13, "the attribute a is given twice"),
        ("def @main(%x: Tensor[(2), flot32]) { %x }", 1, 27, "flot32 is no dtype that fusion takes"),
        ("def @main(%x: Tensor[(-2), float32]) { %x }", 1, 23, "-2 is no dimension"),
        ("def @main(%x: float32) {\n 70000i16 }", 2, 2, "70000i16 is no int16"),
        ("def @main(%x: float32) {\n 1e99f }", 2, 2, "1e99f is no float32"),
        ("def @main(%x: float32) {\n 1f7 }", 2, 2, "1f7 has an unknown width"),
        ("def @main(%x: float32) {\n 1.5i32 }", 2, 2, "1.5i32 is no whole number"),
        ("def @main(%x: float32) {\n %x.99999999999999999999 }", 2, 2, "nothing binds %x.99999999999999999999"),
        ('#[version = "0.0.4"]\nfn (%x: float32) { %x }', 1, 1, 'version "0.0.4" of Relay\'s text form is not read'),
        ("v0.0.4\ndef @main(%x: float32) { %x }", 1, 1, "version v0.0.4 of Relay's text form is not read"),
        ("def @main(%x: float32) {\n meta[relay.Constant][0] }", 2, 2, "meta[relay.Constant][0] cannot be read"),
    ],
)  # fmt: skip
def test_errors_say_where(text: str, line: int, column: int, what: str) -> None:
    error = refused(text)
    assert isinstance(error, RelayTextError)
    assert error.what == what
    assert place(error) == Position(line, column)


def test_a_byte_order_mark_means_nothing() -> None:
    assert list(parse('\ufeff#[version = "0.0.5"]\ndef @main(%x: float32) { %x }').functions) == ["main"]


def test_an_error_in_a_long_line_shows_the_part_around_it() -> None:
    error = refused(f"def @main({'%x: float32, ' * 500}) {{ %x }}")
    shown, caret = error.where.split("\n")[1:]
    assert len(shown) <= 104
    assert shown[caret.index("^") :].startswith("%x")


def test_an_error_says_what_could_stand_there() -> None:
    assert refused("def main() { 1 }").why == "what can is a function's name (@f)"


@pytest.mark.parametrize("code", ["match (%x) { }", "match? (%x) { }", "free_var %z: float32; %z"])
def test_what_is_not_supported_is_named(code: str) -> None:
    error = refused(f"def @main(%x: float32) {{ {code} }}")
    assert isinstance(error, UnsupportedOperatorError)
    assert place(error) == Position(1, 26)
    assert isinstance(refused("type List[A] { Nil, }\ndef @main() { 1 }"), UnsupportedOperatorError)


@pytest.mark.parametrize(
    "code", ["(" * 300 + "%x,)" + ",)" * 299, "exp(" * 300 + "%x" + ")" * 300, "%x" + " + %x" * 300, "%t" + ".0" * 300]
)
def test_deep_nesting_is_an_error_with_a_place(code: str) -> None:
    error = refused(f"def @main(%x: float32, %t: float32) {{ %0 = %t; {code.replace('%t', '%0')} }}")
    assert isinstance(error, RelayTextError)
    assert error.what == "the text is nested more than 100 deep"


def test_a_long_chain_of_bindings_is_not_deep() -> None:
    chain = "".join(f"%{number} = nn.relu(%{number - 1}); " for number in range(1, 3000))
    assert len(body(f"%0 = %x; {chain} %2999").bindings) == 3000


def test_texts_do_not_leave_anything_behind() -> None:
    refused("def @main(%x: float32) { %0 = exp(%x); (")
    assert refused("def @main(%y: float32) { add(%0, %x) }").what == "nothing before binds %0"


@pytest.mark.parametrize("name", shared_models.NETWORKS)
def test_what_tvm_printed(name: str) -> None:
    module = parse(shared_models.text(name), "x.relay")
    main = module.functions["main"]
    assert isinstance(main.result_type, TensorType)
    assert len(main.body.bindings) == shared_models.text(name).count(";")
    assert module.where(main.position).startswith("line 2, column 5 of x.relay\n")


def test_parsing_is_fast() -> None:
    """28 kB take 0.03 s of CPU once the parser's tables are made; in the best of three runs, whatever the host does."""
    text = shared_models.text("mobilenet_64")
    parse(text)
    spent = []
    for _ in range(3):
        started = time.process_time()
        parse(text)
        spent.append(time.process_time() - started)
    assert min(spent) < 0.3
