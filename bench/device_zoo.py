"""`python -m bench.device_zoo [MODEL ...]`: compile the zoo for devices, none of which is needed, and say of each model
how many kernels it becomes, which of them no template takes, and what they are estimated to take.

With `--code` each kernel's code is made too, which takes its compiler. Ends with 1 if a model is not covered.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from tvm import tirx

from backends.kernel import UNSCHEDULED, KernelInfo
from bench import command, zoo
from fusion import context
from fusion.context import Context
from fusion.frontends import import_model
from fusion.lowered import Lowered
from fusion.module.build import plan_calls
from fusion.pipeline import lower

_TARGETS = ("cuda -arch=sm_80", "cuda -arch=sm_90")


def main() -> int:
    """Return 0 if every model has kernels for all of it."""
    options = _parser().parse_args()
    covered = True
    for target in options.target or _TARGETS:
        ctx = replace(context.resolve(target, cache=False, precision=options.precision), strict=False)
        for name in options.models or zoo.available(zoo.ZOO):
            covered &= _compile(zoo.make(name), ctx, code=options.code)
    return 0 if covered else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.device_zoo", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="of any set of the zoo (default: the first)")
    parser.add_argument("--target", action="append", help=f"as of fusion.compile (default: {' and '.join(_TARGETS)})")
    parser.add_argument("--precision", default="fp32", help="as of fusion.compile (default: fp32)")
    parser.add_argument("--code", action="store_true", help="make the code of each kernel that has loops")
    return parser


def _compile(model: zoo.ZooModel, ctx: Context, *, code: bool) -> bool:
    """Print what one model becomes, and return whether all of it has kernels."""
    started = time.process_time()
    try:
        imported = import_model(str(model.path), dict(model.shapes), strict=False)
        lowered = lower(imported, ctx)
        calls = plan_calls(lowered.mod, len(imported.inputs))[1].calls
    except Exception as error:  # of one model, whatever a pass raises: the others are told too
        print(f"{model.name} for {ctx.compiler.device}: {type(error).__name__}: {error}", flush=True)
        return False
    kernels = lowered.kernels
    without = {name: info for name, info in kernels.items() if info.template == UNSCHEDULED}
    templates = Counter(info.template for info in kernels.values() if info.template != UNSCHEDULED)
    estimate = sum(kernels[call.kernel].estimate_us for call in calls)
    parts = [
        f"{len(kernels)} kernels in {len(calls)} calls",
        ", ".join(f"{count} {name}" for name, count in templates.most_common()),
        f"{len(without)} without a template", f"{len(imported.fallbacks)} nodes on ONNX Runtime",
        f"{estimate:.0f} us estimated", f"{time.process_time() - started:.1f} s of CPU",
    ]  # fmt: skip
    if code:
        parts.append(_write_code(lowered, without, ctx))
    print(f"{model.name} for {ctx.compiler.device}: {'; '.join(parts)}", flush=True)
    for reason, count in Counter(f"{' '.join(info.ops)}: {info.note}" for info in without.values()).most_common():
        print(f"    {count} x {reason}", flush=True)
    return not without and not imported.fallbacks


def _write_code(lowered: Lowered, without: Mapping[str, KernelInfo], ctx: Context) -> str:
    functions = {
        symbol.name_hint: func
        for symbol, func in lowered.mod.functions.items()
        if isinstance(func, tirx.PrimFunc) and symbol.name_hint not in without
    }
    started = time.process_time()
    size = len(ctx.compiler.device_code(functions))
    return f"{size / 1e6:.1f} MB of code in {time.process_time() - started:.1f} s of CPU"


if __name__ == "__main__":
    command.run(main)
