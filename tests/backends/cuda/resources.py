"""`python -m tests.backends.cuda.resources [MODEL ...]`: what `ptxas -v` says of each kernel of the zoo, by family.

Compiles the models for sm_80 and sm_90 with NVRTC and ptxas, without a device: registers, spills and shared memory, the
most of each family, against what the device has. Ends with 1 where a model has no kernels for a part of it, where a
product, a convolution (in groups too) or an attention spills, or where a kernel does not fit the device.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tvm import tirx

from backends.cuda.codegen.device_code import generate_kernels
from backends.cuda.codegen.generate import CudaKernel
from backends.cuda.devices import DEVICES, CudaDevice
from backends.kernel import UNSCHEDULED
from bench import zoo
from fusion import context
from fusion.errors import UnsupportedOperatorError
from fusion.frontends import import_model
from fusion.pipeline import lower
from tests.backends.cuda.toolkit import Resources, resources_of

_MAY_SPILL = "other"
"""The work of kernels without products and convolutions."""
_PRECISIONS = ("fp32", "tf32", "bf16")


@dataclass(frozen=True)
class Used:
    """One kernel of a model, of a family and for some work (`KernelInfo.work`), and what it takes."""

    family: str
    work: str
    kernel: CudaKernel
    resources: Resources

    def shared_bytes(self) -> int:
        """Return the shared memory of a block, that of its launch and what the code has."""
        return self.kernel.shared_bytes + self.resources.shared_bytes

    def why_not(self, device: CudaDevice) -> str:
        """Return why it is none that may be; "" where it is."""
        if self.resources.spilled_bytes and self.work != _MAY_SPILL:
            return f"{self.kernel.symbol} spills {self.resources.spilled_bytes} bytes"
        if not device.blocks_at_once(self.kernel.threads, self.resources.registers, self.shared_bytes()):
            return f"{self.kernel.symbol} does not fit {device.name}"
        return ""


def main() -> int:
    """Return 0 if all kernels may be as they are."""
    options = _parser().parse_args()
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for arch in options.arch or DEVICES:
            for name in options.models or zoo.available(zoo.ZOO):
                used = list(kernels_of(zoo.make(name), arch, options.precision, Path(folder)))
                print(f"{name} for {arch}: {len(used)} kernels", flush=True)
                wrong += [f"{name} for {arch}: {reason}" for reason in _tell(used, DEVICES[arch])]
    passed = "no product, convolution or attention spills, and all kernels fit their device"
    print("\n".join(wrong) if wrong else passed)
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.backends.cuda.resources", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="of any set of the zoo (default: the first)")
    parser.add_argument("--arch", action="append", choices=list(DEVICES), help="default: all")
    parser.add_argument("--precision", choices=_PRECISIONS, default="fp32", help="as of fusion.compile")
    return parser


def kernels_of(model: zoo.ZooModel, arch: str, precision: str, folder: Path) -> Iterator[Used]:
    """Yield what each kernel of a model takes.

    Raises:
        UnsupportedOperatorError: A part of it has no kernel.
    """
    ctx = context.resolve(f"cuda -arch={arch}", cache=False, precision=precision)
    lowered = lower(import_model(str(model.path), dict(model.shapes), strict=True), replace(ctx, strict=True))
    for symbol, func in lowered.mod.functions.items():
        if not isinstance(func, tirx.PrimFunc):
            continue
        info = lowered.kernels[symbol.name_hint]
        if info.template == UNSCHEDULED:
            raise UnsupportedOperatorError(f"{symbol.name_hint} of {model.name} has no kernel")
        for launch in generate_kernels(symbol.name_hint, func, arch).launches:
            yield Used(info.template, info.work, launch.kernel, resources_of(launch.kernel, arch, folder))


def _tell(used: list[Used], device: CudaDevice) -> Iterator[str]:
    families = defaultdict(list)
    for each in used:
        families[each.family].append(each)
    for family, kernels in sorted(families.items()):
        most = max(each.resources.registers for each in kernels)
        spilled = sum(each.resources.spilled_bytes for each in kernels)
        shared = max(each.shared_bytes() for each in kernels)
        blocks = min(
            device.blocks_at_once(each.kernel.threads, each.resources.registers, each.shared_bytes())
            for each in kernels
        )
        print(
            f"    {family:<11} {len(kernels):>4}  registers {most:>3}  spilled {spilled:>4}  shared {shared:>7}  "
            f"blocks of an SM at least {blocks}",
            flush=True,
        )
    for each in used:
        reason = each.why_not(device)
        if reason:
            yield reason


if __name__ == "__main__":
    sys.exit(main())
