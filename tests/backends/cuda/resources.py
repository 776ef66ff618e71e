"""`python -m tests.backends.cuda.resources [MODEL ...]`: what `ptxas -v` says of each kernel of the zoo, by family.

Compiles the models for sm_80 and sm_90 with NVRTC and ptxas, without a device: registers, spills and shared memory, the
most of each family, against what the device has. Ends with 1 where a model has no kernels for a part of it, where a
product, a convolution (in groups too) or an attention spills, or where a kernel does not fit the device. With a folder
what is said of each kernel is kept there, so that a command that was ended goes on where it was, and only kernels
whose text has changed are compiled again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tvm import tirx

from backends.cuda.codegen.device_code import generate_kernels
from backends.cuda.codegen.generate import CudaKernel
from backends.cuda.codegen.without_spills import Taken, without_spills
from backends.cuda.devices import DEVICES, CudaDevice
from backends.cuda.schedule import TEMPLATES
from backends.kernel import UNSCHEDULED
from bench import zoo
from fusion import context
from fusion.errors import UnsupportedOperatorError
from fusion.frontends import import_model
from fusion.pipeline import lower
from fusion.system.map_in_threads import map_in_threads
from tests.backends.cuda.kept_resources import KeptResources
from tests.backends.cuda.narrow_model import in_float16
from tests.backends.cuda.toolkit import Resources

_MAY_SPILL = "other"
"""The work of kernels without products and convolutions, but for those of the families that follow."""
_MAY_NOT = ("attention", "product")
_FLOAT16 = "fp16"
"""Of weights, inputs and all between; otherwise they are float32, and operands what the compilation rounds them to."""
PRECISIONS = ("fp32", "tf32", "bf16", _FLOAT16)
_FAMILIES = tuple(template.name for template in TEMPLATES)


@dataclass(frozen=True)
class Generated:
    """One kernel of a model, of a family and for some work (`KernelInfo.work`)."""

    family: str
    work: str
    kernel: CudaKernel


@dataclass(frozen=True)
class Used:
    """A kernel and what it takes."""

    generated: Generated
    resources: Resources

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block, that of its launch and what the code has."""
        return self.generated.kernel.shared_bytes + self.resources.shared_bytes

    def why_not(self, device: CudaDevice) -> str:
        """Return why it is none that may be; "" where it is."""
        kernel = self.generated.kernel
        if self.resources.spilled_bytes and (self.generated.family in _MAY_NOT or self.generated.work != _MAY_SPILL):
            return f"{kernel.symbol} spills {self.resources.spilled_bytes} bytes"
        if not device.blocks_at_once(kernel.threads, self.resources.registers, self.shared_bytes):
            return f"{kernel.symbol} does not fit {device.name}"
        return ""


def main() -> int:
    """Return 0 if all kernels may be as they are."""
    options = _parser().parse_args()
    wrong = []
    with tempfile.TemporaryDirectory() as scratch:
        kept = KeptResources(options.folder or Path(scratch))
        print(_row("model", "device", "precision", "kernels", *_FAMILIES, "shared", "spilled"), flush=True)
        for precision in options.precision or PRECISIONS[:1]:
            for name in options.models or zoo.names(zoo.ZOO):
                for arch in options.arch or DEVICES:
                    used = _used(list(kernels_of(zoo.make(name), arch, precision, Path(scratch))), arch, kept)
                    print(_row(name, arch, precision, *_summary(used)), flush=True)
                    reasons = filter(None, (each.why_not(DEVICES[arch]) for each in used))
                    wrong += [f"{name} for {arch} in {precision}: {reason}" for reason in reasons]
    passed = "no product, convolution or attention spills, and all kernels fit their device"
    print("\n".join(wrong) if wrong else passed)
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.backends.cuda.resources", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="of any set of the zoo (default: the first)")
    parser.add_argument("--arch", action="append", choices=list(DEVICES), help="several times (default: all)")
    parser.add_argument("--precision", action="append", choices=PRECISIONS, help="several times (default: fp32)")
    parser.add_argument("--folder", type=Path, help="where what is said of kernels is kept")
    return parser


def kernels_of(model: zoo.ZooModel, arch: str, precision: str, folder: Path) -> Iterator[Generated]:
    """Yield the kernels of a model.

    Args:
        precision: One of `PRECISIONS`.
        folder: Where a model in float16 is written.

    Raises:
        UnsupportedOperatorError: A part of it has no kernel.
    """
    path, asked = (in_float16(model.path, folder), "fp32") if precision == _FLOAT16 else (model.path, precision)
    ctx = context.resolve(f"cuda -arch={arch}", cache=False, precision=asked)
    lowered = lower(import_model(str(path), dict(model.shapes), strict=True), replace(ctx, strict=True))
    for symbol, func in lowered.mod.functions.items():
        if not isinstance(func, tirx.PrimFunc):
            continue
        info = lowered.kernels[symbol.name_hint]
        if info.template == UNSCHEDULED:
            raise UnsupportedOperatorError(f"{symbol.name_hint} of {model.name} has no kernel")
        for launch in generate_kernels(symbol.name_hint, func, arch).launches:
            yield Generated(info.template, info.work, launch.kernel)


def _used(kernels: list[Generated], arch: str, kept: KeptResources) -> list[Used]:
    def used(each: Generated) -> Used:
        kernel = without_spills(each.kernel, (arch,), taken)
        return Used(replace(each, kernel=kernel), kept.of(kernel, arch))

    def taken(kernel: CudaKernel, arch: str) -> Taken:
        resources = kept.of(kernel, arch)
        return resources.registers, resources.spilled_bytes

    found = map_in_threads(used, kernels)
    kept.write()
    return found


def _summary(used: list[Used]) -> Iterator[str]:
    """Yield how many kernels there are, of each family the most registers, the most shared memory of a block, and how
    many bytes a thread of them all spills."""
    yield f"{len(used)}"
    for family in _FAMILIES:
        yield _most(each.resources.registers for each in used if each.generated.family == family)
    yield _most(each.shared_bytes for each in used)
    yield f"{sum(each.resources.spilled_bytes for each in used)}"


def _most(numbers: Iterable[int]) -> str:
    return f"{max(numbers, default=0) or '-'}"


def _row(*cells: str) -> str:
    """Return a row of a table of Markdown."""
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
