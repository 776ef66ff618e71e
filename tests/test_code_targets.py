"""What tests of kernels are made for: LLVM optimises those for this CPU, as its vectoriser may be wrong, too."""

from __future__ import annotations

from fusion import context
from tests.targets import code_target


def test_kernels_for_this_cpu_are_optimised() -> None:
    here, other = context.resolve("llvm", threads=1).compiler.target, context.resolve("llvm -mcpu=core2").target
    assert "opt-level" not in code_target(here).export()
    assert code_target(other).export()["opt-level"] == 0
