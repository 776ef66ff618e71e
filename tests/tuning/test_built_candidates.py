"""Libraries of candidates: what fails to build is left out, and so is what comes too late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tvm import tirx

from tuning.build import build_library

NOTHING = tirx.PrimFunc([], tirx.Evaluate(tirx.const(0, "int32")))


@dataclass
class Pretended:
    """A toolchain that refuses some kernels."""

    refused: tuple[str, ...] = ()
    links: bool = True
    linked: list[str] = field(default_factory=list)

    def refusal(self) -> str:
        return ""

    def compile(self, kernels: Mapping[str, tirx.PrimFunc], path: Path) -> None:
        for name in self.refused:
            if name in kernels:
                raise ValueError(name)
        path.write_text(" ".join(kernels))

    def link(self, objects: Sequence[Path], path: Path) -> None:
        if not self.links:
            raise OSError("no linker")
        self.linked += [path.read_text() for path in objects]


def test_kernels_that_fail_are_left_out(tmp_path: Path) -> None:
    kernels = [(f"k{index}", NOTHING) for index in range(10)]
    toolchain = Pretended(("k1", "k9"))
    built = build_library(kernels, toolchain, tmp_path / "l.so", lambda: False)
    assert built == {name for name, _ in kernels} - {"k1", "k9"}
    assert {name for text in toolchain.linked for name in text.split()} == built


def test_nothing_is_begun_too_late(tmp_path: Path) -> None:
    assert build_library([("k", NOTHING)], Pretended(), tmp_path / "l.so", lambda: True) == set()


def test_without_a_library_nothing_is_there(tmp_path: Path) -> None:
    assert build_library([("k", NOTHING)], Pretended(links=False), tmp_path / "l.so", lambda: False) == set()
