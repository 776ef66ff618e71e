"""Translates an ExportedProgram with static shapes: decomposed by torch, then node by node by TVM's importer.

Of each node torch knows dtype and shape; a converter whose result has others is refused, not believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import tvm
from torch import fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from fusion.errors import FusionError, UnsupportedOperatorError
from fusion.frontends.origins import Origins
from fusion.frontends.torch import recurrent
from fusion.frontends.torch.converters import CONVERTERS
from fusion.frontends.torch.decompositions import decompositions
from fusion.frontends.torch.program import TO_ONNX, first_line, place_of
from fusion.frontends.torch.promote import promote
from fusion.frontends.torch.quiet import quiet
from fusion.frontends.torch.refusals import place, unsupported
from fusion.frontends.torch.split_complex import split_complex
from fusion.frontends.torch.weights import plain_weights
from fusion.guards import FROM_ZERO
from fusion.shapes import known_extents

# What a converter may compute in, and what is made of it: sums of 16 bits are better off in 32.
_ROUNDED = (("float32", "float16"), ("float32", "bfloat16"))
_NO_DRAWS = "give it to the module as an input; a function that drops out takes training=self.training"
OF_STORAGE = (torch.ops.aten.as_strided.default, torch.ops.aten.as_strided_copy.default)
Convert = Callable[[fx.Node], Any]


def decompose(program: Any) -> Any:
    """Return a program with static shapes in operators that are translated.

    Raises:
        UnsupportedOperatorError: torch cannot decompose it, or it reads memory that it does not know.
    """
    _check_storage(program)
    try:
        with quiet():
            return program.run_decompositions(decompositions())
    except Exception as error:  # whatever torch's own checks raise
        raise UnsupportedOperatorError(
            "torch cannot decompose the program", where=place_of(error), why=first_line(error), hint=TO_ONNX
        ) from error


def to_relax(decomposed: Any, kept: Sequence[int]) -> tuple[tvm.IRModule, tuple[str, ...]]:
    """Return `main` of a decomposed program with static shapes, which is changed: it takes its tensors and returns the
    leaves `kept`; and notes on the rest.

    Raises:
        UnsupportedOperatorError: An operator has no converter, or one of TVM's that fails; a weight is no array of
            numbers, or the program takes or returns complex ones.
    """
    with quiet():
        notes = tuple(_mutations(decomposed))
        _keep_outputs(decomposed, kept)
        _drop_constant_inputs(decomposed)
        split_complex(decomposed)
        promote(decomposed.graph)
        decomposed._state_dict = plain_weights(decomposed.state_dict)
        decomposed._constants = plain_weights(decomposed.constants)
        mod = _import(decomposed)
    return relax.transform.DeadCodeElimination()(mod).with_attr(FROM_ZERO, True), notes


def _check_storage(program: Any) -> None:
    """Refuse to look through a tensor at the memory behind it where that holds something else than its elements in
    order: decompositions lay out in their own way what they make.

    Raises:
        UnsupportedOperatorError: A node does.
    """
    for node in program.graph.nodes:
        value = node.args[0].meta.get("val") if node.op == "call_function" and node.target in OF_STORAGE else None
        if value is None:
            continue
        size, stride, start = (*node.args[1:], None)[:3]
        last = (start or 0) + sum((extent - 1) * step for extent, step in zip(size, stride, strict=True))
        if not value.is_contiguous() or value.storage_offset() or last >= max(1, value.numel()):
            raise unsupported(node, "it reads memory in another order than its operand has elements, or beyond them")


def _mutations(program: Any) -> Iterator[str]:
    for spec in program.graph_signature.output_specs:
        if spec.kind.name == "BUFFER_MUTATION":
            yield f"the buffer {spec.target!r} keeps the value that it has now: a compiled module changes none"
        elif spec.kind.name == "USER_INPUT_MUTATION":
            yield f"the input {spec.target!r} is left as it was given, where the program writes to it"


def _keep_outputs(program: Any, kept: Sequence[int]) -> None:
    """Leave only the leaves `kept` of what the user gets; mutations of buffers and inputs go too."""
    signature = program.graph_signature
    output = program.graph.output_node()
    users = [
        (spec, value)
        for spec, value in zip(signature.output_specs, output.args[0], strict=True)
        if spec.kind.name == "USER_OUTPUT"
    ]
    chosen = [users[index] for index in kept]
    output.args = (tuple(value for _, value in chosen),)
    signature.output_specs[:] = [spec for spec, _ in chosen]
    program.graph.eliminate_dead_code()


def _drop_constant_inputs(program: Any) -> None:
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    specs = program.graph_signature.input_specs
    specs[:] = [
        spec
        for spec in specs
        if spec.kind.name != "TOKEN" and (spec.kind.name != "USER_INPUT" or hasattr(values.get(spec.arg.name), "dtype"))
    ]


def _import(program: Any) -> tvm.IRModule:
    importer = _Importer(program)
    try:
        mod = importer.from_exported_program(program, False, True, False, None)
    except FusionError:
        raise
    except Exception as error:  # TVM's importer raises whatever its assumptions do
        raise UnsupportedOperatorError(
            "the torch program cannot be translated", why=first_line(error), hint=TO_ONNX
        ) from error
    main = mod["main"]
    mod["main"] = main.without_attr("params") if main.attrs and "params" in main.attrs else main
    return importer.origins.attach(mod)


class _Importer(ExportedProgramImporter):  # type: ignore[misc]
    """TVM's importer with our converters in front of its own, every failure an error that names the node.

    Attributes:
        origins: The nodes that its results are of, for errors of the run.
    """

    def __init__(self, program: Any) -> None:
        super().__init__()
        self.origins = Origins()
        held = {**program.state_dict, **program.constants}
        specs = program.graph_signature.input_specs
        self._held = {spec.arg.name: held[spec.target] for spec in specs if spec.target in held}

    def constant_of(self, node: fx.Node) -> Any:
        """Return a parameter, buffer or constant of the program as a constant of Relax, None where `node` is none:
        to other converters it is a variable, bound behind them."""
        tensor = self._held.get(node.name)
        return None if tensor is None else relax.const(self._convert_pytorch_tensor_to_tvm(tensor))

    def create_convert_map(self) -> dict[str, Convert]:
        """Return the converters by the name of the operator."""
        theirs: dict[str, Convert] = super().create_convert_map()
        del theirs["as_strided.default"]  # it takes every operand for contiguous
        ours = {name: self._bound(convert) for name, convert in CONVERTERS.items()}
        return {name: self._checked(convert) for name, convert in {**theirs, **ours}.items()}

    def _bound(self, convert: Callable[[Any, Any], Any]) -> Convert:
        return lambda node: convert(node, self)

    def _checked(self, convert: Convert) -> Convert:
        def run(node: fx.Node) -> Any:
            try:
                value = convert(node)
            except FusionError:
                raise
            except Exception as error:  # TVM's converters raise whatever their assumptions do
                raise unsupported(node, first_line(error)) from error
            result = self._as_torch_says(node, value)
            self.origins.note(result, f"{node.target.__name__.partition('.')[0]} {place(node)}")
            return result

        return run

    def _as_torch_says(self, node: fx.Node, value: Any) -> Any:
        expected, kind = node.meta.get("val"), getattr(value, "ty", None)
        if not isinstance(expected, torch.Tensor) or not isinstance(kind, relax.TensorType):
            return value
        if free_unbacked_symbols(expected):
            raise unsupported(node, "how many elements it takes depends on the data")
        dtype = self._convert_data_type(expected.dtype)
        shape = known_extents(kind.shape)
        if shape is not None and shape != tuple(expected.shape):
            raise unsupported(node, f"the converter gives the shape {list(shape)} for {list(expected.shape)}")
        if str(kind.dtype) == dtype:
            return value
        if (str(kind.dtype), dtype) in _ROUNDED:
            return self.block_builder.emit(relax.op.astype(value, dtype))
        raise unsupported(node, f"the converter gives {kind.dtype} for {dtype}")

    def _check_unsupported_func_type(self, nodes: Sequence[fx.Node]) -> None:
        for node in nodes:
            if node.op == "call_function" and _draws(node):
                # TVM's importer has converters for some, which leave dropping out and make zeros of draws.
                raise unsupported(node, "it draws random numbers, others in every run", _NO_DRAWS)
            if node.op == "call_function" and node.target.__name__ not in self.convert_map:
                raise unsupported(node, "there is no converter for it")


def _draws(node: fx.Node) -> bool:
    """Return whether an operator draws random numbers."""
    if node.target in recurrent.OPERATORS:
        return recurrent.drops_out(node)
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
