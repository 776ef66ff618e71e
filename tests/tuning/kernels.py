"""Kernels that do what generated code never should, as a library, experiments with them, and a session for these."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tuning.experiment import Experiment, LibraryCall, Step, Storage, View
from tuning.measuring_session import MeasuringSession
from tuning.messages import Answer, Trial, Trying

SOURCE = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define KERNEL(name) int __tvm_ffi_##name(void* self, const void* arguments, int count, void* result)
KERNEL(good) { return 0; }
KERNEL(crashes) { abort(); }
KERNEL(faults) { *(volatile int*)8 = 1; return 0; }
KERNEL(hangs) { for (volatile int turn = 0;;) turn ^= 1; }
KERNEL(grows) {
  for (;;) {
    char* some = malloc(1 << 26);
    if (!some) abort();
    memset(some, 1, 1 << 12);
  }
}
KERNEL(writes) {
  for (int line = 0; line < 200000; ++line) { fputs("{\\"kind\\": 7}\\n", stderr); puts("{\\"kind\\": 7}"); }
  return fflush(stdout);
}
"""


def build_kernels(folder: Path) -> Path:
    """Return a library of them in `folder`."""
    (folder / "kernels.c").write_text(SOURCE)
    made = folder / "kernels.so"
    subprocess.run(
        [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O0", folder / "kernels.c", "-o", made], check=True
    )
    return made


def experiment_of(library: Path, names: list[str]) -> Experiment:
    """Return an experiment with these candidates for one kernel."""
    calls = tuple((LibraryCall(name, (0,)),) for name in names)
    return Experiment(
        libraries=(str(library),),
        data="",
        storages=(Storage(4, filler=1),),
        tensors=(View(0, (1,), "float32"),),
        steps=(Step(0, calls, ()),),
        threads=1,
        seconds=0.2,
    )


class ShortWithSome(MeasuringSession):
    """Has little patience with the candidates that hang, and much with a machine on which a process takes long to
    start.

    Attributes:
        hanging: Those.
        patience_s: With them.
    """

    hanging: tuple[Trial, ...] = ()
    patience_s = 1.0
    _last: Answer | None = None

    def _answer(self, seconds: float) -> Answer:
        is_hanging = isinstance(self._last, Trying) and self._last.trial in self.hanging
        self._last = None
        self._last = super()._answer(self.patience_s if is_hanging else 120.0)
        return self._last


class ShortWithCandidates(ShortWithSome):
    """Has little patience with all candidates but the defaults."""

    patience_s = 5.0

    def _answer(self, seconds: float) -> Answer:
        if isinstance(self._last, Trying):
            self.hanging = (self._last.trial,) if self._last.trial.candidate else ()
        return super()._answer(seconds)
