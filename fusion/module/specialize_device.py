"""From a lowered model to the code of a device and the plan of its calls, and what runs them where the device is."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import tvm
from tvm import relax, tirx

from backends.kernel import UNSCHEDULED, KernelInfo
from backends.registry import device_runtime
from fusion.bindings import Bindings, call_name
from fusion.context import Context
from fusion.errors import UnsupportedOperatorError
from fusion.frontends.imported import ImportedModel
from fusion.frontends.origins import all_origins
from fusion.lowered import Lowered
from fusion.model_graph import MAPPED, ModelGraph
from fusion.module.build import plan_branches
from fusion.module.foreign_program import ForeignProgram
from fusion.module.offload_program import offload
from fusion.module.plan import RunPlan
from fusion.module.settings import Settings, refusal, settings_of
from fusion.module.share_weights import share_weights
from fusion.module.specialization import Code, Specialization
from fusion.module.views import is_reshape
from fusion.stages import stage

_NAMED = 4
"""Kernels without a template that an error names."""
_HINT = 'compile the model with target="llvm"'


def specialize_device(imported: ImportedModel, lowered: Lowered | None, ctx: Context) -> Specialization:
    """Return the form of a model whose kernels run on the device of `ctx`; without one here, it can be saved.

    Raises:
        LimitError: The memory of the device here does not suffice.
        UnsupportedOperatorError: A part of it has no kernel there; all such operators are named.
        NotInstalledError: The compiler of kernels is not there.
    """
    settings = settings_of(ctx)
    if lowered is None or imported.fallbacks:
        nodes = ", ".join(f"{node.op} {node.node!r}: {node.reason}" for node in imported.fallbacks[:_NAMED])
        raise UnsupportedOperatorError(f"{ctx.compiler.device} runs no part of ONNX Runtime", why=nodes, hint=_HINT)
    code = device_code(lowered, len(imported.inputs), ctx, {} if imported.mod is None else all_origins(imported.mod))
    graph, reason = lowered.graph, refusal(settings)
    return Specialization(
        inputs=imported.inputs,
        outputs=imported.outputs,
        program=offload(code, imported.inputs, settings) if reason is None else ForeignProgram(reason),
        code=code,
        kernels=_with_estimates(lowered.kernels, code, settings),
        fallbacks=(),
        subgraphs={},
        notes=(*imported.notes, *lowered.notes),
        graph=lambda: graph,
    )


def device_code(
    lowered: Lowered, n_inputs: int, ctx: Context, origins: Mapping[str, str] = MappingProxyType({})
) -> Code:
    """Return the code of `lowered`, or of a part of a model, for the device of `ctx`; its `main` takes so many inputs
    before the weights.

    Args:
        origins: What errors call the operators of the model, by the names of their results.

    Raises:
        UnsupportedOperatorError, NotInstalledError: As `specialize_device`.
    """
    _require_templates(lowered, ctx.compiler.device, origins)
    with ctx.target:
        mod, plan = plan_branches(lowered.mod, n_inputs)
    _require_kernels_alone(mod, plan, ctx.compiler.device, _Places(lowered.graph, origins))
    called = {call.kernel for call in plan.calls}
    functions = {
        symbol.name_hint: func
        for symbol, func in mod.functions.items()
        if isinstance(func, tirx.PrimFunc) and symbol.name_hint in called
    }
    with stage("machine code"):
        library = ctx.compiler.device_code(functions)
    return Code(plan, share_weights(lowered.weights), lambda: library, linked=True)


def _with_estimates(kernels: Mapping[str, KernelInfo], code: Code, settings: Settings) -> dict[str, KernelInfo]:
    """Return what is known of kernels: where their template estimated no time, by which it would choose, with the
    roofline time of their code on the device whose kernels these are; those of devices without figures stay so."""
    arch = json.loads(settings.target)["arch"]
    works = device_runtime(settings.kind).estimate(code.library(), kernels)
    own = {name: work.roofline_us for name, each in works.items() for work in each if work.arch == arch}

    def estimated(info: KernelInfo) -> KernelInfo:
        return info if info.cycles else replace(info, estimate_us=own.get(info.name, info.estimate_us))

    return {name: estimated(info) for name, info in kernels.items()}


@dataclass(frozen=True)
class _Places:
    """Where in the model the steps of a compiled one come from: `origins` as of `device_code`."""

    graph: ModelGraph
    origins: Mapping[str, str]

    def of(self, steps: Collection[str]) -> str:
        """Return the operators that are parts of the kernels and called functions of these names, or, where passes gave
        their results other names, those that are called so; "" without any."""
        calls = {position for position, call in enumerate(self.graph.calls) if call.op in steps}
        alike = {step.rpartition(".")[2] for step in steps}
        alike |= {name.rstrip("0123456789") for name in alike}
        operators = self.graph.operators
        followed = [each.name for each in operators if each.how == MAPPED and calls.intersection(each.calls)]
        named = [each.name for each in operators if each.op.rpartition(".")[2] in alike]
        found = (self.origins[name] for name in followed or named if name in self.origins)
        return _listed(list(dict.fromkeys(found)))


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - _NAMED
    return "; ".join(texts[:_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _require_templates(lowered: Lowered, device: str, origins: Mapping[str, str]) -> None:
    without = [info for info in lowered.kernels.values() if info.template == UNSCHEDULED]
    if not without:
        return
    names = [" ".join(info.ops[:_NAMED]) + " ..." * (len(info.ops) > _NAMED) or info.name for info in without]
    reasons = dict.fromkeys(info.note for info in without)
    raise UnsupportedOperatorError(
        f"no kernel of {device} computes {_listed(names)}",
        where=_Places(lowered.graph, origins).of({info.name for info in without}),
        why=_listed(list(reasons)),
        hint=_HINT,
    )


def _require_kernels_alone(mod: tvm.IRModule, plan: RunPlan, device: str, places: _Places) -> None:
    """Raise where `main` does more than call kernels on tensors whose places the plan knows."""
    main = mod["main"]
    calls = [
        value
        for binding in Bindings.of(main).all
        if isinstance(value := binding.value, relax.Call) and not _is_planned(value)
    ]
    if calls or any(call.conditions for call in plan.calls) or any(each.place is None for each in plan.outputs):
        names = sorted({str(getattr(call.op, "global_symbol", call.op)) for call in calls})
        raise UnsupportedOperatorError(
            f"a run on {device} would need the host between two kernels",
            where=places.of(names or ["if"]),
            why=f"for {', '.join(names[:_NAMED])}" if names else "which branch is run depends on numbers of the device",
            hint=_HINT,
        )


def _is_planned(call: relax.Call) -> bool:
    """Return whether the plan has a call: of a kernel, of memory, or one that gives a tensor another shape."""
    return isinstance(call.op, tvm.ir.GlobalVar) or call_name(call) == "builtin.alloc_tensor" or is_reshape(call)
