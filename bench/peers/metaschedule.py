"""TVM's MetaSchedule: its pipeline for static shapes tunes while it loads, weights packed before the run."""

from __future__ import annotations

from pathlib import Path

import tvm
from tvm import relax
from tvm.relax import transform
from tvm.relax.frontend import detach_params
from tvm.relax.frontend.onnx import from_onnx
from tvm.s_tir.meta_schedule.builder import LocalBuilder
from tvm.s_tir.meta_schedule.relax_integration import tune_relax

from bench.peers.engine import Engine, Job, Runner
from bench.peers.plain_tvm import fix_shapes, runner
from fusion import context

TRIALS = 256
"""How many candidates it measures of a model."""
_BUILD_S = 180.0
"""For a candidate, in place of 30 s: each new process of the builder imports TVM's intrinsics first, which takes as
long on a slow host, so that it was ended, and all candidates with it."""


class MetaSchedule:
    """TVM's own pipeline for it, with its defaults for space, search and cost model."""

    def load(self, job: Job, folder: Path) -> Runner:
        """Fix the shapes, import, tune and compile."""
        proto = fix_shapes(job, folder / "fixed.onnx")
        shapes = {name: list(shape) for name, shape in job.shapes.items()}
        module, weights = detach_params(from_onnx(proto, shape_dict=shapes, keep_params_in_input=True))
        here = context.resolve("llvm").target.attrs
        target = tvm.target.Target({
            "kind": "llvm", "mcpu": here["mcpu"], "mattr": list(here.get("mattr", [])), "num-cores": job.threads,
        })  # fmt: skip
        tuned = _tune(module, target, str(folder / "metaschedule"))
        program = tvm.compile(tuned, target)
        # Not before: it binds this thread to one CPU, and with it the processes in which candidates are built.
        tvm.get_global_func("runtime.config_threadpool")(1, job.threads)
        machine = relax.VirtualMachine(program, tvm.cpu())
        packed = machine["main_transform_params"](weights["main"]) if weights.get("main") else ()
        return runner(machine, job, proto, list(packed))


def _tune(module: tvm.IRModule, target: tvm.target.Target, folder: str) -> tvm.IRModule:
    """Return what `relax.get_pipeline("static_shape_tuning", cpu_weight_prepack=True)` does, which has no option for
    the builder's deadline."""
    with target:
        before = (
            transform.DecomposeOpsForInference(), transform.CanonicalizeBindings(), relax.get_pipeline("zero"),
            transform.AttachAttrLayoutFreeBuffers(),
        )  # fmt: skip
        module = tvm.transform.Sequential(before)(module)
        tune_relax(module, {}, target, folder, TRIALS, builder=LocalBuilder(timeout_sec=_BUILD_S))
        behind = (
            transform.MetaScheduleApplyDatabase(folder), transform.SplitLayoutRewritePreproc(),
            transform.LiftTransformParams(), transform.FoldConstant(),
        )  # fmt: skip
        return tvm.transform.Sequential(behind)(module)


ENGINE: Engine = MetaSchedule()
