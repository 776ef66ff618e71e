"""The public function `compile`; `load` is in `fusion.load_saved`, which needs none of the compiler."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import tvm

from fusion import context
from fusion.apart import asking_apart
from fusion.cached_forms import find_or_compile, uses_cache
from fusion.closed_builders import forget_builders
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
from fusion.system.abandon import checkpoint, taking_precedence
from fusion.system.collector import seldom
from fusion.system.forks import Lock
from fusion.system.interrupts import keeping_interrupts
from fusion.system.memory import check_memory
from fusion.tensors import numpy_dtype
from fusion.threads import require_threads

if TYPE_CHECKING:
    from fusion.device_module import DeviceModule
    from fusion.frontends.relay.parameters import Parameters

Shapes = Mapping[str, Sequence[int]]
NamedShapes = Mapping[str, Sequence[int | str]]
_log = logging.getLogger("fusion.backends")
_OF_MODEL = (InvalidModelError, ShapeError, UnsupportedOperatorError)
"""Errors that are the model's own, at some sizes: compiling again brings them again."""


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

    Args: model: The path of an ONNX file, an `onnx.ModelProto`, a `tvm.IRModule` (Relax), a
        `torch.export.ExportedProgram`, a tuple of a `torch.nn.Module`, its example inputs and, optionally, a dict of
        keyword arguments, or a Relay module: its text, the path of that, an object with `astext`, or a tuple of one of
        these and its parameters.
        target: "llvm" is this machine; "llvm -mcpu=NAME" another CPU, "llvm -mtriple=aarch64-linux-gnu
            -mcpu=cortex-a72" another architecture; "cuda" the CUDA device of this machine, "cuda -arch=sm_80,sm_90"
            devices of these architectures and later ones. A module for another machine can only be saved. It needs the
            shape of every input, as one for a CUDA device does.
            A list, ["llvm:0-0", "llvm:1-1"], divides the model among several devices: sets of this machine's CPUs, CUDA
            devices ("cuda:0") and servers of TVM RPC ("rpc://host:9090/key"). The result is a `DeviceModule`, which
            also has `stream`; it needs the shape of every input.
        shapes: The shapes of inputs that the model leaves open. Not needed for dimensions that have a name which occurs
            in another shape. A dimension given as a name stays open, with one size per call for all dimensions of that
            name. If shapes stay open, the model is compiled with the first call. A weight that the model also lists
            among its inputs is an input if it is named here.
        effort: "fast" measures nothing. "balanced" measures the few best candidates of each kernel on this machine, for
            about half a minute. "max" searches on until nothing is expected to gain 1%, for ten minutes at most.
        threads: The number of threads at run time; by default one for each core whose time this process gets.
        backends: The backends to use, by default "cpu" and "onnxruntime". Without "onnxruntime" a model is refused as
            with `strict`. Other libraries, and those that other packages register, are only used if they are named. The
            order counts: "openvino" and "onnxruntime" run whole regions, and "cublaslt" and "cudnn" run matmuls and
            convolutions of CUDA targets, if they are named before "cpu". With "balanced" they do so only where the
            whole model is measured to be faster. Without "cpu", each library runs what those before it leave, and an
            operator that all leave is an error. What is not installed is skipped, with a warning of the log
            `fusion.backends` and a line of `explain()`.
        strict: Whether to refuse a model of which some part needs ONNX Runtime, or meets a defect of the compiler that
            would otherwise be worked around.
        precision: "fp32". "bf16": matmuls and convolutions round their operands to bfloat16 and sum in float32; an
            error on CPUs without AVX512_BF16. "bf16-or-fp32": float32 on these. "tf32": on CUDA devices, float32
            operands are rounded to 10 bits behind the point.
        params: The values of parameters of a Relay module's `main`, which become constants; other parameters stay
            inputs. A dict of arrays, or the path of an .npz or of what `relay.save_param_dict` wrote, which may hold
            more than is needed.
        dynamic_shapes: The open dimensions of a torch module, as for `torch.export.export`.
        cache: Whether to keep compiled code in the user's cache folder, and to take it from there if the same model was
            compiled before. The variable `FUSION_CACHE` names another folder, or is 0 for none.
        database: Where measurements of kernels are kept: the path of a file, False for nowhere, or an object with the
            methods of `tuning.database.RecordStore`. By default "balanced" and "max" use one in the user's cache
            folder; "fast" reads it only if it is named here.
        wait: Whether a call with a new shape waits until the model is compiled for it. Otherwise ONNX Runtime answers
            meanwhile, if it runs the whole of an ONNX model and `strict` is not set; results can then differ in their
            last bits once the compiled form takes over. Calls take `wait` too.
        dynamic: Whether to compile a model with open dimensions once for all their sizes, if that is possible.
            Otherwise it is compiled for each shape that it is called with, and the last 16 forms are kept.
        hot_shapes: How many shapes get a form of their own beside that for all sizes. A shape does when it has been
            called a thousand times; its form is compiled in the background and used if it is faster. 0 for none.
        bounds: The sizes of open dimensions, by the names that they have in the model or in `shapes`: {"length":
            range(1, 513), "width": range(32, 2049, 32)}. A call with another size is an error. Bounds make the tables
            of the form for all sizes smaller, and steps let it use that sizes are multiples.

    Raises:
        FusionError: A subclass says what is wrong with the model, the target or an option.
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
    for line in ctx.skipped:
        _log.warning("%s", line)
    check_flag("wait", wait)
    check_flag("dynamic", dynamic)
    check_count("hot_shapes", hot_shapes)
    given = {} if shapes is None else read_named_shapes(shapes)
    new = _NewShapes(bool(wait), bool(dynamic), int(hot_shapes), {} if bounds is None else read_bounds(bounds))
    if devices:
        return _device_module(open_model(model, params, dynamic_shapes), given, ctx, devices, bounds=new.bounds)
    return _module(open_model(model, params, dynamic_shapes), given, ctx, new)


class _NewShapes(NamedTuple):
    """What a module does when it meets a new shape: the options of `compile` of the same names."""

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
    if settings.device:
        require_static(bound, f"kernels for {settings.device} are compiled for one size of each dimension")
    if reason is None:
        require_threads(ctx.threads)
        _require_memory(bound)
    else:
        _require_shapes(bound, reason)
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
    """Return `model` divided among `devices`. Only its kernels are cached."""
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
    """Return the inputs and outputs of `model`. A thread begins to sum up a file before."""
    if pinned.is_file:
        pinned.pin()
    with pinned.unchanged():
        return read_signature(model)


def _require_memory(inputs: Sequence[TensorSpec]) -> None:
    """Check that every input fits into memory; on larger ones the analysis of loops would take hours.

    Raises:
        LimitError: One does not.
    """
    for spec in inputs:
        if spec.is_tensor and spec.is_static and spec.dtype not in TEXT:
            check_memory(spec.extents, numpy_dtype(spec.dtype).itemsize, f"input {spec.name!r}")


def _whole(model: PinnedModel, ctx: Context) -> Program | None:
    """Return a program that runs the whole of `model` on ONNX Runtime; None if that cannot."""
    imported = model.read(lambda opened, _: import_whole(opened))
    return None if imported is None else specialize(imported, None, ctx).program


def _overrides(model: PinnedModel, given: NamedShapes, ctx: Context, new: _NewShapes) -> Overrides | None:
    """Return what compiles `model` again with some of its weights as inputs; None if it has no such weights. A file is
    only read when that is asked for."""
    if not model.is_file and not model.read(lambda opened, _: read_overridable(opened)):
        return None  # so that nothing keeps the model in memory
    model.pin()

    def make(names: tuple[str, ...]) -> CompiledModule:
        return _module(model.read(lambda opened, _: with_inputs(opened, names)), given, ctx, new)

    return Overrides(lambda: model.read(lambda opened, _: read_overridable(opened)), make)


compiling = Lock(forget_builders)
"""Held while compiling: TVM's builders share one stack in the whole process. Runs of compiled forms do not need it."""


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
    """Return the form of `model` for all sizes, within `bounds`, of the dimensions that `signature` leaves open after
    `shapes`. If there is none for all sizes, it is for sizes that behave like those of the `first` call.

    Raises:
        Declined: There is none; the reason says why.
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
        # Only now, as computing constants anew takes more of each call than constants that follow from sizes.
        try:
            return lower_for_all(computing, inputs, ctx, first, bounds)
        except (Declined, *_OF_MODEL):
            raise reason from None

    def compile_open(opened: Any) -> Specialization:
        with compiling, seldom(), keeping_interrupts(), beginning_code(ctx) as begun:
            checkpoint()()
            try:
                read = importer(opened, strict=ctx.strict, byte_products=ctx.compiler.byte_products)
                lowered = lower_open(read, begun)
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
    """Return `inputs` with the dimensions that `shapes` gives filled in.

    Raises:
        ShapeError: `shapes` names an unknown input, or contradicts a dimension that the model fixes.
    """
    names = [spec.name for spec in inputs]
    for name in shapes:
        if name not in names:
            raise unknown_input(name, names)
    return tuple(_bind(spec, shapes[spec.name]) if spec.name in shapes else spec for spec in inputs)


def _require_shapes(inputs: Sequence[TensorSpec], reason: TargetError) -> None:
    """Raise unless every input has a shape: a module that cannot run here will not see one in a call."""
    require_static(inputs, f"the model leaves it open; {reason.what}")


def _require_result(outputs: Sequence[TensorSpec]) -> None:
    """Raise unless the outputs are known before compiling, which a module with open dimensions needs."""
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
