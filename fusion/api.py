"""The public function `compile`; `load` is in `fusion.load_saved`, which needs none of the compiler."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import tvm

from fusion import context
from fusion.abandon import checkpoint, taking_precedence
from fusion.apart import asking_apart
from fusion.cached_forms import find_or_compile, uses_cache
from fusion.closed_builders import forget_builders
from fusion.collector import seldom
from fusion.compiled_module import CompiledModule
from fusion.context import Context
from fusion.declined import Declined
from fusion.devices.targets import DeviceTarget, parse_devices, target_of
from fusion.errors import (
    InvalidModelError,
    OptionError,
    ShapeError,
    TargetError,
    UnsupportedOperatorError,
    unknown_input,
)
from fusion.forks import Lock
from fusion.frontends import (
    Importer,
    Signature,
    TensorSpec,
    computing_made,
    import_whole,
    importer,
    is_onnx,
    open_model,
    read_overridable,
    read_signature,
    with_inputs,
)
from fusion.interrupts import keeping_interrupts
from fusion.map_in_threads import map_in_threads
from fusion.memory import check_memory
from fusion.model_digest import ModelDigest
from fusion.module.hot_shapes import HotShapes
from fusion.module.input_slot import TEXT
from fusion.module.open_form import OpenForm
from fusion.module.overrides import Overrides
from fusion.module.program import Program
from fusion.module.settings import refusal, settings_of
from fusion.module.specialization import Shapes as CallShapes
from fusion.module.specialization import Specialization
from fusion.module.specializations import Specializations
from fusion.module.specialize import specialize, specialize_open
from fusion.module.stand_in import StandIn
from fusion.module.write_objects import beginning_code
from fusion.options import FAST, GENERATOR, check_count, check_flag, read_bounds, read_named_shapes
from fusion.pinned_model import PinnedModel
from fusion.report.placement import placement_of
from fusion.second_forms import compile_form
from fusion.signature import complete_shapes, name_dims, require_dims, require_static
from fusion.symbolic.fit import NoTableError
from fusion.symbolic.lower_for_all import lower_for_all
from fusion.symbolic.open_model import OpenModel
from fusion.tensors import numpy_dtype
from fusion.threads import require_threads

if TYPE_CHECKING:
    from fusion.device_module import DeviceModule
    from fusion.frontends.relay.parameters import Parameters

Shapes = Mapping[str, Sequence[int]]
NamedShapes = Mapping[str, Sequence[int | str]]
_log = logging.getLogger("fusion.backends")
_OF_MODEL = (InvalidModelError, ShapeError, UnsupportedOperatorError)
"""Errors of a model at some sizes, which it has each time."""


@asking_apart()
def compile(
    model: Any,
    target: str | tvm.target.Target | Sequence[str] = "llvm",
    *,
    shapes: NamedShapes | None = None,
    effort: str = "fast",
    threads: int | None = None,
    backends: Sequence[str] | None = None,
    strict: bool = False,
    precision: str = "fp32",
    params: Parameters | None = None,
    dynamic_shapes: Any = None,
    cache: bool = True,
    database: Any = None,
    wait: bool = False,
    dynamic: bool = True,
    hot_shapes: int = 4,
    bounds: Mapping[str, range] | None = None,
) -> CompiledModule:
    """Compile `model` into the fastest program found for `target`.

    Args:
        model: Path of an ONNX file, `onnx.ModelProto`, `tvm.IRModule` (Relax), `torch.export.ExportedProgram`, a
            tuple of a `torch.nn.Module`, its example inputs and, if it takes them, a dict of keyword arguments, or a
            Relay module: its text, the path of that, an object with `astext`, or a tuple of it and its parameters.
        target: "llvm" is this machine; "llvm -mcpu=NAME" another CPU, and "llvm -mtriple=aarch64-linux-gnu
            -mcpu=cortex-a72" another architecture; "cuda" the CUDA device that is here, "cuda -arch=sm_80,sm_90" those
            of such architectures and later ones. A module that cannot run here can be saved; it needs every shape, as
            one for a CUDA device does.
            A list, ["llvm:0-0", "llvm:1-1"], is several devices, sets of this machine's CPUs, CUDA devices ("cuda:0")
            and servers of TVM RPC ("rpc://host:9090/key"), among which the model is divided: the module is a
            `DeviceModule`, needs every shape, and has `stream`.
        shapes: Shape of each input that the model leaves open; none is needed where the names of the open dimensions
            have sizes in other shapes. Without it such a model is compiled when it is first called. A dimension may
            have a name in place of a size: it stays open, and has one size in a call with others of that name. A weight
            that the model lists among its inputs too is an input if it is named here.
        effort: "fast": nothing is measured or tuned while compiling; "balanced": each kernel's few best candidates
            are measured on this machine, in about half a minute, and the fastest is taken; "max": they are searched
            until nothing is expected to gain 1% any more, for ten minutes at most.
        threads: Threads at run time; None for one on each core that this process gets the time of.
        backends: Backends that may be used, of "cpu" and "onnxruntime"; None for both. Without "onnxruntime" it is as
            `strict`. Libraries that other packages register are used where they are named, in this order. "openvino",
            and "onnxruntime" too, run whole regions where they are named before "cpu"; with "balanced" only where the
            whole model is then faster, measured, wherever "openvino" is named. "cublaslt" runs products of CUDA
            targets, and "cudnn" convolutions, where they are named before "cpu". Without "cpu" libraries run all of
            the model, each what those before it leave, with each effort, and what all leave over is an error. What is
            not installed is left out, and `explain` says so.
        strict: Refuse a model of which a part needs the fallback backend, or which a defect keeps from its first form.
        precision: "fp32"; "bf16": matmuls and convolutions round their operands to bfloat16 and sum in float32, and a
            CPU without instructions for that (x86's AVX512_BF16) is an error; "bf16-or-fp32": float32 on such a CPU;
            "tf32": on CUDA devices they round operands of float32 to 10 bits behind the point (tfloat32) instead.
        params: Values of parameters of a Relay module's `main`, which become constants; the others stay inputs. A dict
            of arrays, or the path of an .npz or of what `relay.save_param_dict` wrote; a file may hold more than that.
        dynamic_shapes: Of a torch module, as for `torch.export.export`: the dimensions that stay open.
        cache: Whether compiled code is kept in the user's cache folder, and taken from there where the same model was
            compiled before. The variable `FUSION_CACHE` names another folder, or is 0 for none.
        database: What was measured of kernels: the path of a file, False for none, or an object with the methods of
            `tuning.database.RecordStore`. "balanced" looks there before it measures, and keeps there what it measures,
            by default in the user's cache folder; "fast" looks there if it is named. It is never an error of a model.
        wait: Whether a call with a shape that is new waits until the model is compiled for it. Without, ONNX Runtime
            answers meanwhile where it runs the whole model: that of an ONNX model, without `strict`; results then
            differ in their last bits once the form is ready. `run` and calls of the module take `wait` too.
        dynamic: Whether a model with open dimensions is compiled once for all their sizes, where it can be. Without,
            and where it cannot, it is compiled for each shape that it is called with, and the last 16 forms are kept.
        hot_shapes: How many shapes get a form of their own beside the one for all sizes, when they have been called a
            thousand times; it is made in the background, and takes over between two calls if it is faster. 0 for none.
        bounds: The sizes of open dimensions by their names, those of the model or of `shapes`: {"length":
            range(1, 513), "width": range(32, 2049, 32)}. Other sizes are an error of the call; tables of a form for all
            sizes are as large as these ask for, and what follows from a multiple is known of it.

    Raises:
        FusionError: The subclass says what is wrong with the model, the target or an option.
    """
    devices = parse_devices(target) if isinstance(target, list | tuple) else ()
    if devices and threads is not None:
        raise OptionError(
            f"threads={threads!r} has no use with a list of devices",
            why="each has as many threads as CPUs",
            hint="leave threads= out",
        )
    ctx = context.resolve(
        target_of(devices) if devices else target,
        threads=max(device.threads for device in devices) if devices else threads,
        effort=effort,
        strict=strict,
        backends=backends,
        precision=precision,
        cache=cache,
        database=database,
    )
    check_flag("wait", wait)
    check_flag("dynamic", dynamic)
    check_count("hot_shapes", hot_shapes)
    given = {} if shapes is None else read_named_shapes(shapes)
    new = _NewShapes(bool(wait), bool(dynamic), int(hot_shapes), {} if bounds is None else read_bounds(bounds))
    if devices:
        return _device_module(open_model(model, params, dynamic_shapes), given, ctx, devices, bounds=new.bounds)
    return _module(open_model(model, params, dynamic_shapes), given, ctx, new)


class _NewShapes(NamedTuple):
    """What a module does about shapes that are new: the options of `compile` of these names."""

    wait: bool
    dynamic: bool
    hot_shapes: int
    bounds: Mapping[str, range]


def _module(model: Any, given: NamedShapes, ctx: Context, new: _NewShapes) -> CompiledModule:
    settings = settings_of(ctx)
    reason = refusal(settings)
    pinned = PinnedModel(model, ctx.cache)
    inputs, outputs = _read_signature(pinned, model)
    strangers = given.keys() - {spec.name for spec in inputs}
    if strangers and strangers <= {spec.name for spec in read_overridable(model)}:
        return _module(with_inputs(model, strangers), given, ctx, new)
    inputs, shapes = name_dims(inputs, given)
    shapes = complete_shapes(inputs, shapes)
    bound = bind_shapes(inputs, shapes)
    require_dims(bound, new.bounds)
    if reason is None:
        require_threads(ctx.threads)
        _require_memory(bound)
    else:
        _require_shapes(bound, reason)
    if settings.device:
        require_static(bound, f"kernels for {settings.device} are compiled for one size of each dimension")
    if all(spec.is_static for spec in bound):
        overrides = _overrides(pinned, given, ctx, new)
        form = _specialize(pinned, shapes, ctx)
        return CompiledModule(form.inputs, form.outputs, settings, fixed=form, overrides=overrides)
    _require_result(outputs)
    pinned.pin()

    def make_open(first: CallShapes | None) -> Specialization:
        return _open_form(pinned, (bound, outputs), shapes, ctx, first, bounds=new.bounds)

    forms = Specializations(
        bound,
        lambda concrete: _specialize(pinned, concrete, ctx),
        opened=OpenForm(make_open if new.dynamic else None),
        hot=HotShapes(new.hot_shapes),
        stand_in=None if ctx.strict or not is_onnx(model) else StandIn(lambda: _whole(pinned, ctx), outputs),
        wait=new.wait,
        equal=frozenset(size for shape in given.values() for size in shape if isinstance(size, str)),
        bounds=new.bounds,
    )
    return CompiledModule(bound, outputs, settings, forms=forms, overrides=_overrides(pinned, given, ctx, new))


def _device_module(
    model: Any, given: NamedShapes, ctx: Context, devices: tuple[DeviceTarget, ...], bounds: Mapping[str, range]
) -> DeviceModule:
    """Return `model` divided among `devices`; nothing of it is kept in the cache but its kernels."""
    # Here, not above: of all compilations only these need plans, which take 50 ms to import.
    from fusion.device_module import DeviceModule, divide

    inputs, _ = read_signature(model)
    inputs, named = name_dims(inputs, given)
    shapes = complete_shapes(inputs, named)
    bound = bind_shapes(inputs, shapes)
    require_dims(bound, bounds)
    require_static(bound, "a model is divided among several devices for one size of each dimension")
    _require_memory(bound)
    require_threads(sum(device.threads for device in devices))
    if ctx.libraries_only and ctx.effort != FAST:
        raise OptionError(
            f"backends= leaves out {GENERATOR!r}, and effort={ctx.effort!r} divides a model by what is measured",
            why="what libraries take among several devices is not measured",
            hint=f'name {GENERATOR!r} too, or use effort="fast"',
        )
    with taking_precedence(), compiling:
        if ctx.effort != FAST:
            ctx = ctx.without_graph_libraries("what they take among several devices is not measured")
        form = compile_form(model, shapes, ctx, partial(divide, devices=devices))
    return DeviceModule(form, settings_of(ctx))


def _read_signature(pinned: PinnedModel, model: Any) -> Signature:
    """Return inputs and outputs of `model`; a file is summed up meanwhile, which takes as long."""
    if not pinned.is_file:
        return read_signature(model)
    found: list[Signature] = []
    with pinned.unchanged():
        map_in_threads(lambda read: read(), (lambda: found.append(read_signature(model)), pinned.pin))
    return found[0]


def _require_memory(inputs: Sequence[TensorSpec]) -> None:
    """Raise where an input fits no memory: what counts the turns of loops over it would take hours.

    Raises:
        LimitError: It does not.
    """
    for spec in inputs:
        if spec.is_tensor and spec.is_static and spec.dtype not in TEXT:
            check_memory(spec.extents, numpy_dtype(spec.dtype).itemsize, f"input {spec.name!r}")


def _whole(model: PinnedModel, ctx: Context) -> Program | None:
    """Return the whole of `model` on ONNX Runtime, None where that does not run it."""
    imported = model.read(lambda opened, _: import_whole(opened))
    return None if imported is None else specialize(imported, None, ctx).program


def _overrides(model: PinnedModel, given: NamedShapes, ctx: Context, new: _NewShapes) -> Overrides | None:
    """Return what compiles `model` with some of its weights as inputs; a file is read for that when it is asked for."""
    if not model.is_file and not model.read(lambda opened, _: read_overridable(opened)):
        return None  # nothing keeps the model in memory
    model.pin()

    def make(names: tuple[str, ...]) -> CompiledModule:
        return _module(model.read(lambda opened, _: with_inputs(opened, names)), given, ctx, new)

    return Overrides(lambda: model.read(lambda opened, _: read_overridable(opened)), make)


compiling = Lock(forget_builders)
"""TVM's builders stand on one stack for the whole process. Runs of forms that are ready never ask for the lock."""


def _specialize(model: PinnedModel, shapes: Shapes, ctx: Context) -> Specialization:
    def make(opened: Any, digest: ModelDigest | None) -> Specialization:
        return find_or_compile(digest, shapes, ctx, lambda: _compile(opened, shapes, ctx))

    with taking_precedence():
        form = model.read(make, digest=uses_cache(ctx))
    if _log.isEnabledFor(logging.INFO):
        _log.info("placement: %s", placement_of(form, settings_of(ctx).generator))
    return form


def _open_form(
    model: PinnedModel,
    signature: Signature,
    shapes: Shapes,
    ctx: Context,
    first: CallShapes | None,
    bounds: Mapping[str, range],
) -> Specialization:
    """Return the form of `model` for all sizes within `bounds` of the dimensions that `signature`, with `shapes`,
    leaves open; for those like the ones of the `first` call, if it does not take all.

    Raises:
        Declined: It has none, for this reason.
        FusionError: The model is at fault.
    """
    inputs, outputs = signature

    def lower_open(read: Importer, ctx: Context) -> OpenModel:
        try:
            return lower_for_all(read, inputs, ctx, first, bounds)
        except NoTableError as no_table:
            reason = no_table.with_traceback(None)  # its frames hold all that was made of the model
            computing = computing_made(read)
            if computing is None:
                raise
        # Where they can, constants follow from sizes, which takes less of a call than what computes them.
        try:
            return lower_for_all(computing, inputs, ctx, first, bounds)
        except (Declined, *_OF_MODEL):
            raise reason from None

    def compile_open(opened: Any) -> Specialization:
        with compiling, seldom(), keeping_interrupts(), beginning_code(ctx) as begun:
            checkpoint()()
            try:
                lowered = lower_open(importer(opened, strict=ctx.strict), begun)
            except _OF_MODEL as error:
                raise Declined(error.what) from error
            return specialize_open(lowered, inputs, outputs, begun)

    def make(opened: Any, digest: ModelDigest | None) -> Specialization:
        return find_or_compile(
            digest, shapes, ctx, lambda: compile_open(opened), open_inputs=inputs, first=first, bounds=bounds
        )

    with taking_precedence():
        return model.read(make, digest=uses_cache(ctx))


def _compile(model: Any, shapes: Shapes, ctx: Context) -> Specialization:
    with compiling, seldom():
        checkpoint()()
        return compile_form(model, shapes, ctx)


def bind_shapes(inputs: Sequence[TensorSpec], shapes: Shapes) -> tuple[TensorSpec, ...]:
    """Return `inputs` with the dimensions that `shapes` gives.

    Raises:
        ShapeError: `shapes` names an unknown input, or contradicts a dimension that the model fixes.
    """
    names = [spec.name for spec in inputs]
    for name in shapes:
        if name not in names:
            raise unknown_input(name, names)
    return tuple(_bind(spec, shapes[spec.name]) if spec.name in shapes else spec for spec in inputs)


def _require_shapes(inputs: Sequence[TensorSpec], reason: TargetError) -> None:
    """Raise unless every input has a shape: what cannot be called here meets none later."""
    require_static(inputs, f"the model leaves it open; {reason.what}")


def _require_result(outputs: Sequence[TensorSpec]) -> None:
    """Raise unless the outputs are known before the model is compiled, as a module with open dimensions needs them."""
    if not outputs:
        raise InvalidModelError(
            "the model leaves dimensions open and does not say what it returns",
            hint="give every input its shape with shapes=, or write the result type: def @main(...) -> Tensor[...]",
        )


def _bind(spec: TensorSpec, shape: Sequence[int]) -> TensorSpec:
    extents = tuple(shape)
    if not spec.allows(extents):
        raise ShapeError(
            f"shapes={{{spec.name!r}: {extents}}} contradicts the model",
            where=f"input {spec.name!r}",
            why=spec.misfit(extents),
            hint="give one size for each dimension; only those shown as ? can be chosen",
        )
    return TensorSpec(spec.name, extents, spec.dtype, spec.axes)
