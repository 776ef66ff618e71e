"""Lower, group, schedule and run one complex operator and what stands behind it, without the passes over the graph."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import tvm
import tvm_ffi
from torch.nn import functional
from tvm import relax, tirx
from tvm.relax import _ffi_api
from tvm.relax.vm_build import _filter_tir, _vmcodegen

from backends.backend import KernelCompiler
from backends.cpu.kernels.shared.lowering.packing import PACK
from backends.cpu.lowerings import lowerings
from backends.tensorir.legalize import LEGALIZATIONS
from backends.tensorir.lower_anchors import LowerAnchors
from backends.tensorir.result import Kernel
from backends.tensorir.schedule_kernels import ScheduleKernels
from fusion import context
from fusion.bindings import is_call_tir
from partition.dataflow import read_graph
from partition.emit_groups import fused_primfunc
from partition.form_groups import FormGroups
from partition.profitability import Profitability, no_template
from tests.kept_code import unoptimised
from tests.passes.modules import Build, execute, module
from tests.targets import AVX2, code_target, machine_code, runs_here, with_vectors_of_their_own

# TVM's default pipeline looks for reshapes among PrimFuncs, and aborts on those that are scheduled.
TO_VM_CODE = [
    relax.transform.ToNonDataflow(),
    relax.transform.RemovePurityChecking(),
    relax.transform.CallTIRRewrite(),
    relax.transform.StaticPlanBlockMemory(),
    relax.transform.LowerAllocTensor(),
    relax.transform.KillAfterLastUse(),
    relax.transform.LowerRuntimeBuiltin(),
    relax.transform.ComputePrimValue(),
    relax.transform.VMShapeLower(),
    relax.transform.AttachGlobalSymbol(),
]
# Of an AVX-512 machine: 16 lanes and 32 registers, 8 and 16, 4 and 16 (the vectors of NEON); of one with AVX2 the last
# two, as kernels for other CPUs with the same vectors would be the same again.
TARGETS = with_vectors_of_their_own(("llvm", *filter(runs_here, (AVX2, "llvm -mcpu=nehalem"))))
EPILOGUES = ("bias", "channel", "residual", "relu", "sigmoid", "scale", "clip", "pixel", "regroup", "fork")


def with_targets(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return each name for this machine's vectors, and every second for narrower ones in turn."""
    native, *narrower = TARGETS
    listed = list(names)
    return [*((name, native) for name in listed), *zip(listed[::2], itertools.cycle(narrower), strict=False)]


@dataclass(frozen=True)
class Ran:
    """The outputs of a function and its kernels before and after they got their loops."""

    outputs: list[np.ndarray]
    kernels: dict[str, Kernel]

    def templates(self) -> list[str]:
        """Return the templates of all kernels but those that pack weights of the run."""
        return sorted(kernel.made.template for name, kernel in self.kernels.items() if not name.startswith(PACK))


def run(
    build: Build, arrays: Sequence[np.ndarray], target: str, threads: int, judge: Profitability = no_template
) -> Ran:
    """Return what `build(builder, *inputs)` gives on `arrays`, through the code generator for `target`."""
    return built(build, arrays, target, threads, judge)(arrays)


@dataclass(frozen=True)
class Built:
    """Kernels with loops, and the machine code of a function that calls them."""

    executable: relax.VMExecutable
    kernels: dict[str, Kernel]

    def __call__(self, arrays: Sequence[np.ndarray]) -> Ran:
        return Ran(execute(self.executable, arrays), self.kernels)


def built(
    build: Build, arrays: Sequence[np.ndarray], target: str, threads: int, judge: Profitability = no_template
) -> Built:
    """Return what `run` runs, for other arrays of the same shapes too."""
    compiler = context.resolve(target, threads=threads).compiler
    return build_grouped(to_schedule(build, arrays, judge, compiler.machine.vector_lanes), compiler)


def kernels_of(
    build: Build, arrays: Sequence[np.ndarray], target: str, threads: int, judge: Profitability = no_template
) -> dict[str, Kernel]:
    """Return the kernels that `run` runs, without machine code."""
    compiler = context.resolve(target, threads=threads).compiler
    mod = to_schedule(build, arrays, judge, compiler.machine.vector_lanes)
    return ScheduleKernels(compiler.schedule).run(mod).fact.by_name


def to_schedule(build: Build, arrays: Sequence[np.ndarray], judge: Profitability, lanes: int) -> tvm.IRModule:
    """Return the calls of the kernels that it becomes, and them without their loops."""
    mod = _legalised(build, arrays, lanes)
    for apply in (
        FormGroups(judge),
        relax.transform.FuseTIR(),
        relax.transform.RewriteDataflowReshape(),
        relax.transform.DeadCodeElimination(["main"]),
    ):
        mod = apply(mod)
    return mod


def build_grouped(mod: tvm.IRModule, compiler: KernelCompiler, *, optimised: bool = True) -> Built:
    """Return what the kernels of `to_schedule` become; `optimised` as for `build_scheduled`."""
    scheduled = ScheduleKernels(compiler.schedule).run(mod)
    return Built(build_scheduled(scheduled.mod, compiler, optimised=optimised), scheduled.fact.by_name)


_MOST_BUILT = 64
"""Executables that are kept: those not used for longest are dropped."""

_built: OrderedDict[str, tuple[tvm.IRModule, relax.VMExecutable]] = OrderedDict()
"""What was built, by the hash of the module and by the target. Cases that differ only in their data, and points of a
space that have the same loops, take LLVM once."""


def build_scheduled(mod: tvm.IRModule, compiler: KernelCompiler, *, optimised: bool = True) -> relax.VMExecutable:
    """Return `mod`, whose kernels have loops, with the machine code that `compiler` makes of them.

    Args:
        optimised: Whether LLVM optimises it, of loops for this CPU. Many loops of a kernel differ by points of its
            space; that LLVM makes the same of them in fewer instructions is seen where they are its default.
    """
    target = code_target(compiler.target) if optimised else unoptimised(compiler.target)
    key = f"{tvm_ffi.structural_hash(mod)} {target}"
    made = _built.get(key)
    if made is None or not tvm_ffi.structural_equal(made[0], mod):
        _built[key] = made = mod, _build(mod, compiler, target)
    _built.move_to_end(key)
    while len(_built) > _MOST_BUILT:
        _built.popitem(last=False)
    return made[1]


def _build(mod: tvm.IRModule, compiler: KernelCompiler, target: tvm.target.Target) -> relax.VMExecutable:
    """With TVM's own list of TensorIR passes, in `relax.build`, LLVM takes four times as long."""
    builder = relax.ExecBuilder()
    kernels = _filter_tir(_vmcodegen(builder, tvm.transform.Sequential(TO_VM_CODE)(mod), "bytecode"))
    with compiler.target:
        code = machine_code(kernels, target)
    return relax.VMExecutable(_ffi_api.VMLink(builder, compiler.target, code, [], {}))


def always(kernel: tirx.PrimFunc) -> str:
    """Make every chain one kernel, whatever it costs."""
    return ""


def one_kernel(build: Build, arrays: Sequence[np.ndarray], lanes: int = 16) -> tirx.PrimFunc:
    """Return all that `build(builder, *inputs)` calls as one kernel without its loops, be they a group or not."""
    return fused_primfunc([node for node in read_graph(_legalised(build, arrays, lanes)) if is_call_tir(node.value)])


def groups(
    build: Build, arrays: Sequence[np.ndarray], judge: Profitability = no_template, lanes: int = 16
) -> list[tirx.PrimFunc]:
    """Return the kernels of `build(builder, *inputs)` without their loops."""
    mod = grouped(build, arrays, judge, lanes)
    return [func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc)]


def grouped(
    build: Build, arrays: Sequence[np.ndarray], judge: Profitability = no_template, lanes: int = 16
) -> tvm.IRModule:
    """Return the calls of these kernels, and them."""
    return relax.transform.FuseTIR()(FormGroups(judge)(_legalised(build, arrays, lanes)))


def _legalised(build: Build, arrays: Sequence[np.ndarray], lanes: int) -> tvm.IRModule:
    return relax.transform.LegalizeOps(LEGALIZATIONS)(LowerAnchors(lowerings(lanes))(module(build, arrays)))


@dataclass(frozen=True)
class Epilogue:
    """Steps behind an anchor whose result has `shape`, in Relax and in float64 NumPy, and the inputs they read."""

    steps: tuple[str, ...]
    shape: tuple[int, ...]
    seed: int

    def arrays(self) -> list[np.ndarray]:
        """Return one input per residual and per pixel-wise factor."""
        shapes = {"residual": self.shape, "pixel": (*self.shape[:-1], 1)}
        return [normal(shapes[s], self.seed + i) for i, s in enumerate(self.steps) if s in shapes]

    def relax(self, builder: relax.BlockBuilder, value: relax.Expr, inputs: Sequence[relax.Var]) -> relax.Expr:
        op, extra, results = relax.op, list(inputs), []
        for step in self.steps:
            value = builder.emit(value)
            match step:
                case "bias" | "channel":
                    value = op.add(value, relax.const(self._bias(step)))
                case "residual":
                    value = op.add(value, extra.pop(0))
                case "pixel":
                    value = op.multiply(value, extra.pop(0))
                case "scale":
                    value = op.subtract(relax.const(np.float32(0.5)), op.multiply(value, relax.const(np.float32(1.5))))
                case "clip":
                    value = op.clip(value, -0.5, 0.5)
                case "fork":
                    results.append(value)
                case "regroup":
                    pass  # the last step, below
                case _:
                    value = op.nn.relu(value) if step == "relu" else op.sigmoid(value)
        value = self._regrouped(builder, value) if self.regroups else value
        return relax.Tuple([*results, builder.emit(value)]) if results else builder.emit(value)

    def _bias(self, step: str) -> np.ndarray:
        """Return numbers along the last axis, or for "channel" along the second: that of the channels of N, C, H, W."""
        shape = self.shape[-1:] if step == "bias" else (*self.shape[1:2], *(1 for _ in self.shape[2:]))
        return normal(shape, self.seed)

    @property
    def regroups(self) -> bool:
        """Whether the rows are split in two axes that change places at the end."""
        return self.steps[-1:] == ("regroup",) and self.shape[-2] % 2 == 0 and self.shape[-2] > 2

    def _regrouped(self, builder: relax.BlockBuilder, value: relax.Expr) -> relax.Expr:
        *lead, rows, channels = self.shape
        halves = builder.emit(relax.op.reshape(value, (*lead, 2, rows // 2, channels)))
        rank = len(lead)
        return relax.op.permute_dims(halves, [*range(rank), rank + 1, rank, rank + 2])

    def numpy(self, value: np.ndarray) -> list[np.ndarray]:
        extra, results = self.arrays(), []
        for step in self.steps:
            match step:
                case "bias" | "channel":
                    value = value + self._bias(step)
                case "residual":
                    value = value + extra.pop(0)
                case "pixel":
                    value = value * extra.pop(0)
                case "scale":
                    value = 0.5 - value * 1.5
                case "clip":
                    value = value.clip(-0.5, 0.5)
                case "fork":
                    results.append(value)
                case "regroup":
                    pass  # the last step, below
                case _:
                    value = np.maximum(value, 0) if step == "relu" else 1 / (1 + np.exp(-value))
        if self.regroups:
            *lead, rows, channels = self.shape
            value = value.reshape(*lead, 2, rows // 2, channels).swapaxes(-3, -2)
        return [*results, value]


def normal(shape: Sequence[int], seed: int) -> np.ndarray:
    """Return float32 numbers from a standard normal distribution."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype("float32")


def check(ran: Ran, expected: Sequence[np.ndarray]) -> None:
    """Compare with float64; the sums are over a few hundred products of unit scale."""
    for got, want in zip(ran.outputs, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-5 * max(1.0, np.abs(want).max(initial=0)))


def wide(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array.astype("float64"))


def channels_last(tensor: torch.Tensor) -> np.ndarray:
    return tensor.permute(0, 2, 3, 1).numpy()


def convolve(
    data: np.ndarray, weight: np.ndarray, strides: tuple, padding: tuple, dilation: tuple, groups: int
) -> np.ndarray:
    top, left, bottom, right = padding
    padded = functional.pad(wide(data).permute(0, 3, 1, 2), (left, right, top, bottom))
    return channels_last(functional.conv2d(padded, wide(weight), None, strides, 0, dilation, groups))
