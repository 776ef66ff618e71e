"""`manifest.json` of a saved module: everything but code, weights and fallback models, as plain data.

Dataclasses are written field by field and read back with every field checked against its annotation, so that a file
from elsewhere cannot bring in anything but the types named here.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backends.kernel import KernelInfo
from fusion.errors import OptionError
from fusion.extents import DerivedSize, Extent, Sizes, with_derived
from fusion.module.plan import Argument, KernelCall, RunPlan
from fusion.module.settings import Settings
from fusion.options import check_threads
from fusion.placement_times import PlacementTimes
from fusion.signature import FallbackNode, TensorSpec
from fusion.symbolic.open_weights import Count, Counted, CountedRuns, TableWindow
from fusion.tensors import tensor_bytes

FORMAT = 17
"""Raised when a file of the old form cannot be read any more."""


@dataclass(frozen=True)
class StoredWeight:
    """Shape and dtype of a weight, and its number in the member that holds it."""

    number: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class StoredOpenWeight:
    """An `OpenWeight`; see there."""

    shape: tuple[Extent, ...]
    table: StoredWeight
    counts: tuple[Count, ...]
    window: TableWindow | None

    @property
    def source(self) -> Counted | TableWindow:
        """How it is made.

        Raises:
            ValueError: In no way, or in two.
        """
        if bool(self.counts) == (self.window is not None):
            raise ValueError("a constant that depends on sizes is made in no way or in two")
        if self.window is not None:
            return self.window
        return self.counts[0] if len(self.counts) == 1 else CountedRuns(self.counts)


@dataclass(frozen=True)
class StoredOpenPlan:
    """What an `OpenRunPlan` has beside the plan at typical sizes.

    Attributes:
        dims: For each input the size of each dimension as text, or its symbol.
        derived: Symbols whose sizes follow from those before them.
        bounds: The smallest and the largest size of each symbol, and how far apart those between are.
    """

    typical_sizes: Mapping[str, int]
    buffers: tuple[tuple[Extent, ...], ...]
    given: tuple[tuple[Extent, ...], ...]
    arguments: tuple[tuple[tuple[Extent, ...], ...], ...]
    dims: tuple[tuple[str, ...], ...]
    derived: tuple[DerivedSize, ...]
    bounds: Mapping[str, tuple[int, ...]]
    weights: tuple[StoredOpenWeight, ...]


@dataclass(frozen=True)
class StoredForm:
    """One compiled form.

    Attributes:
        plan: None where the model is wholly a fallback.
        code, weights, graph: Names of the members with the shared library, the weights, which forms share, and the
            `ModelGraph`; empty without a plan.
        subgraphs: Member of each fallback subgraph by its key.
        opened: Of a form for all sizes, of which `plan` is at typical ones.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    plan: RunPlan | None
    code: str
    weights: str
    graph: str
    weight_types: tuple[StoredWeight, ...]
    subgraphs: Mapping[str, str]
    kernels: Mapping[str, KernelInfo]
    fallbacks: tuple[FallbackNode, ...]
    notes: tuple[str, ...]
    times: PlacementTimes
    opened: StoredOpenPlan | None


@dataclass(frozen=True)
class Manifest:
    """A saved module.

    Attributes:
        format: `FORMAT` of the writer.
        fusion, tvm, ffi: Versions of the packages that made it.
        inputs, outputs: The signature of the whole module; forms have their own.
        dynamic: Whether it was compiled per input shape.
        bounds: Of each dimension of which `compile` was told the sizes by name the smallest, the largest and the step.
        checksums: Of each member: `archive.checksum`.
    """

    format: int
    fusion: str
    tvm: str
    ffi: str
    settings: Settings
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dynamic: bool
    bounds: Mapping[str, tuple[int, ...]]
    forms: tuple[StoredForm, ...]
    checksums: Mapping[str, str]


def to_json(manifest: Manifest) -> bytes:
    """Return `manifest` as JSON."""
    return json.dumps(dataclasses.asdict(manifest), separators=(",", ":")).encode()


def read_header(data: bytes) -> dict[str, Any]:
    """Return the raw fields of a manifest, of whichever format.

    Raises:
        ValueError: `data` is no JSON object.
    """
    fields = json.loads(data)
    if not isinstance(fields, dict):
        raise ValueError("the manifest is no object")
    return fields


def from_fields(fields: dict[str, Any]) -> Manifest:
    """Return the manifest with these fields.

    Raises:
        ValueError: A field is missing or of another type than declared.
    """
    manifest = parse(fields, Manifest, "manifest")
    assert isinstance(manifest, Manifest)
    _check_settings(manifest.settings)
    _check_bounds(manifest.bounds)
    for form in manifest.forms:
        _check_form(form)
        for specs, known in ((form.inputs, manifest.inputs), (form.outputs, manifest.outputs)):
            if [spec.name for spec in specs] != [spec.name for spec in known]:
                raise ValueError("a form has other inputs or outputs than the module")
    return manifest


def _check_settings(settings: Settings) -> None:
    try:
        check_threads(settings.threads)
    except OptionError as error:
        raise ValueError(error.what) from error
    if not isinstance(json.loads(settings.target), dict):
        raise ValueError("manifest.settings.target is no object of JSON")


def _check_form(form: StoredForm) -> None:
    """Raise unless what the plan says of memory fits together; what a kernel does with it, only its code knows."""
    buffers = form.plan.buffers if form.plan is not None else ()
    shapes: list[Sequence[int | None]] = [spec.shape or () for spec in (*form.inputs, *form.outputs)]
    shapes += [weight.shape for weight in form.weight_types] + [buffer.shape for buffer in buffers]
    for shape in shapes:
        if min((extent for extent in shape if extent is not None), default=0) < 0:
            raise ValueError(f"the shape {shape} is none")
    static = all(spec.is_static for spec in form.inputs if spec.is_tensor and form.plan)
    if not static and form.opened is None:
        raise ValueError("an input of a compiled form has an open shape")
    if form.plan is None:
        return
    for buffer in buffers:
        known, size = 0 <= buffer.storage < len(form.plan.storages), _bytes(buffer.shape, buffer.dtype)
        if not known or size > form.plan.storages[buffer.storage]:
            raise ValueError(f"a buffer of {size} bytes has no place in its storage")
    if form.opened is None:
        _check_calls(form, form.plan)
    else:
        _check_open(form, form.plan, form.opened)
    if len(form.plan.outputs) != len(form.outputs):
        raise ValueError(f"the plan has {len(form.plan.outputs)} outputs and the form {len(form.outputs)}")


def _check_calls(form: StoredForm, plan: RunPlan) -> None:
    """Raise unless what a kernel is called with is there, and as large as the kernel takes it to be."""
    shapes = [tuple(extent or 0 for extent in spec.shape or ()) for spec in form.inputs]
    specs = zip(shapes, form.inputs, strict=True)
    inputs = [_bytes(shape, spec.dtype) if spec.is_tensor else 0 for shape, spec in specs]
    weights, buffers = ([_bytes(held.shape, held.dtype) for held in kind] for kind in (form.weight_types, plan.buffers))
    there = _places(inputs, weights, buffers) | _given(plan, [result.shape for result in plan.given])
    for call in plan.calls:
        for argument in (*call.arguments, *(condition.tensor for condition in call.conditions)):
            _check_argument(call, argument, argument.shape, there)


def _check_open(form: StoredForm, plan: RunPlan, opened: StoredOpenPlan) -> None:
    """Raise unless the extents of all there is are known at all sizes."""
    if len(opened.buffers) != len(plan.buffers) or len(opened.dims) != len(form.inputs):
        raise ValueError("the form for all sizes has other buffers or inputs than its plan")
    if [len(shapes) for shapes in opened.arguments] != [len(call.arguments) for call in plan.calls]:
        raise ValueError("the form for all sizes has other calls than its plan")
    for dims, spec in zip(opened.dims, form.inputs, strict=True):
        if [int(dim) if is_number(dim) else None for dim in dims] != list(spec.shape or ()):
            raise ValueError(f"the form for all sizes has other dimensions of input {spec.name!r}")
    if len(opened.given) != len(plan.given):
        raise ValueError("the form for all sizes is given memory for other results than its plan")
    _check_sizes(form, opened)
    for place in (0, 1):
        corner = {symbol: bounds[place] for symbol, bounds in opened.bounds.items()}
        _check_open_calls(form, plan, opened, with_derived(corner, opened.derived))


def _check_sizes(form: StoredForm, opened: StoredOpenPlan) -> None:
    """Raise unless the sizes that extents depend on are those of inputs, or follow from these."""
    following = {size.symbol for size in opened.derived}
    known = {dim for dims in opened.dims for dim in dims if not is_number(dim)} - following
    extents = [extent for shape in (*opened.buffers, *opened.given) for extent in shape]
    extents += [extent for shapes in opened.arguments for shape in shapes for extent in shape]
    extents += [extent for weight in opened.weights for extent in (*weight.shape, *weight.source.extents)]
    extents += [extent for info in form.kernels.values() if info.sized is not None for extent in info.sized.extents()]
    same = known == opened.bounds.keys() == opened.typical_sizes.keys()
    for size in opened.derived:
        is_told = all(known.issuperset(part.symbols) for part in size.parts)
        if size.divisor < 1 or size.most < 0 or size.symbol in known or not is_told:
            raise ValueError(f"the form for all sizes has no size {size.symbol!r} that follows from others")
        known.add(size.symbol)
    if not same or any(not known.issuperset(extent.symbols) for extent in extents):
        raise ValueError("the form for all sizes has extents of unknown sizes")
    _check_bounds(opened.bounds)


def _check_bounds(known: Mapping[str, tuple[int, ...]]) -> None:
    """Raise unless each is the smallest and the largest of some sizes, and the step between them."""
    for symbol, bounds in known.items():
        if len(bounds) != 3 or not (0 <= bounds[0] <= bounds[1] and bounds[2] > 0 and bounds[1] in _range(bounds)):
            raise ValueError(f"the sizes of {symbol!r} have no bounds")


def _range(bounds: Sequence[int]) -> range:
    smallest, largest, step = bounds
    return range(smallest, largest + 1, step)


def _is_of_one_size(weight: StoredOpenWeight, opened: StoredOpenPlan) -> bool:
    """Return whether an open weight depends on one size of the inputs alone: then its table has all within bounds."""
    symbols = {symbol for extent in (*weight.shape, *weight.source.extents) for symbol in extent.symbols}
    return len(symbols) == 1 and symbols <= opened.bounds.keys()


def is_number(dim: str) -> bool:
    """Return whether a stored dimension is a size, and no symbol."""
    return dim.isascii() and dim.isdigit()


def _check_open_calls(form: StoredForm, plan: RunPlan, opened: StoredOpenPlan, sizes: Sizes) -> None:
    """Raise unless what a kernel is called with at `sizes` is there, and as large as it takes it to be."""

    def at(shape: tuple[Extent, ...]) -> tuple[int, ...]:
        return tuple(extent.at(sizes) for extent in shape)

    shapes = [tuple(int(dim) if is_number(dim) else sizes[dim] for dim in dims) for dims in opened.dims]
    inputs = [_bytes(shape, spec.dtype) for shape, spec in zip(shapes, form.inputs, strict=True)]
    for weight in opened.weights:
        shape, table = at(weight.shape), weight.table
        inputs.append(_bytes(shape, table.dtype))
        if (window := weight.window) is not None and (
            not len(table.shape) == len(shape) == len(window.starts) == len(window.firsts)
            or any(not 0 <= axis < len(shape) for axis in window.diagonal or ())
            or len(set(window.diagonal or (0, 1))) != 2
            or (_is_of_one_size(weight, opened) and not window.is_in(table.shape, weight.shape, sizes))
        ):
            raise ValueError(f"a table of {table.shape} has no part of {shape}")
        counted = [at(count.shape) for count in weight.counts]
        if any(len(count.steps) != len(count.shape) for count in weight.counts):
            raise ValueError("numbers are counted along other axes than they have")
        if len(counted) == 1 and not _makes_up(counted[0], shape):
            raise ValueError(f"numbers of {counted[0]} do not make up {shape}")
        if len(counted) > 1 and not _are_behind_one_another(counted, shape):
            raise ValueError(f"numbers of {counted} behind one another are not of {shape}")
    buffers = [_bytes(at(extents), held.dtype) for extents, held in zip(opened.buffers, plan.buffers, strict=True)]
    weights = [_bytes(held.shape, held.dtype) for held in form.weight_types]
    there = _places(inputs, weights, buffers) | _given(plan, [at(extents) for extents in opened.given])
    for call, taken in zip(plan.calls, opened.arguments, strict=True):
        for argument, extents in zip(call.arguments, taken, strict=True):
            _check_argument(call, argument, at(extents), there)


def _makes_up(part: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Return whether tensors of shape `part` beside one another are one of shape `whole`."""
    if len(part) != len(whole):
        return False
    return 0 in whole or all(few > 0 and many % few == 0 for few, many in zip(part, whole, strict=True))


def _are_behind_one_another(parts: Sequence[tuple[int, ...]], whole: tuple[int, ...]) -> bool:
    """Return whether rows of the shapes `parts` together have the shape `whole`."""
    if any(len(part) != 1 or part[0] < 0 for part in parts):
        return False
    return whole == (sum(length for (length,) in parts),)


_Place = tuple[str, int]
"""Kind and number of what kernels are called with."""


def _places(inputs: Sequence[int], weights: Sequence[int], buffers: Sequence[int]) -> dict[_Place, int]:
    """Return the bytes in each place."""
    kinds = {"input": inputs, "weight": weights, "buffer": buffers}
    return {(kind, number): size for kind, sizes in kinds.items() for number, size in enumerate(sizes)}


def _given(plan: RunPlan, shapes: Sequence[tuple[int, ...]]) -> dict[_Place, int]:
    """Return the bytes of each result that runs are given memory for, which have these shapes.

    Raises:
        ValueError: One is no result, or is given twice.
    """
    found = {
        (held.kind, held.index): _bytes(shape, held.dtype) for held, shape in zip(plan.given, shapes, strict=True)
    }
    if len(found) < len(plan.given) or any(held not in plan.results for held in plan.given):
        raise ValueError("memory is given for what is no result")
    return found


def _check_argument(
    call: KernelCall, argument: Argument, shape: tuple[int, ...], there: Mapping[_Place, int]
) -> None:
    """Raise unless an argument of `shape` is no larger than what is there in its place. Of "fresh" memory that is not
    given, code asks for what it needs."""
    size, place = _bytes(shape, argument.dtype), (argument.kind, argument.index)
    held = there.get(place, size if argument.kind == "fresh" else -1)
    if size > held:
        raise ValueError(f"kernel {call.kernel!r} takes {size} bytes of {argument.kind} {argument.index}")


def _bytes(shape: tuple[int, ...], dtype: str) -> int:
    if min(shape, default=0) < 0:
        raise ValueError(f"the shape {shape} is none")
    try:
        return tensor_bytes(shape, dtype)
    except (TypeError, AttributeError) as error:
        raise ValueError(f"{dtype!r} is no dtype") from error


def parse(value: Any, kind: Any, where: str) -> Any:
    """Return plain data as a value of `kind`: a dataclass, tuple, mapping, optional or plain type.

    Raises:
        ValueError: It is none; the text begins with `where`.
    """
    if dataclasses.is_dataclass(kind):
        return _parse_dataclass(value, typing.cast("type", kind), where)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return None if value is None else parse(value, arguments[0], where)
    if origin is tuple:
        return tuple(parse(item, arguments[0], where) for item in _expect(value, list, where))
    if origin is Mapping:
        return {str(key): parse(item, arguments[1], where) for key, item in _expect(value, dict, where).items()}
    return _expect(value, kind, where)


def _parse_dataclass(value: Any, kind: type, where: str) -> Any:
    fields = _expect(value, dict, where)
    hints = _hints(kind)
    missing = hints.keys() - fields.keys()
    if missing:
        raise ValueError(f"{where} has no {', '.join(sorted(missing))}")
    return kind(**{name: parse(fields[name], hint, f"{where}.{name}") for name, hint in hints.items()})


_hints = functools.cache(typing.get_type_hints)


def _expect(value: Any, kind: type, where: str) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{where} is of type {type(value).__name__}, not {kind.__name__}")
    return value
