"""The process that measures ends with the one that asked it, whatever ended that and whatever it is doing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from subprocess import Popen
from types import SimpleNamespace

import pytest

from fusion.system import process_groups
from tests.tuning.kernels import build_kernels

_PARENT = """
import sys
from pathlib import Path
from tests.tuning.kernels import experiment_of
from tuning import measuring_session

class Telling(measuring_session.MeasuringSession):
    def _answer(self, seconds):
        answer = super()._answer(seconds)
        print(self._process.pid, answer, flush=True)
        return answer

library, folder, command = sys.argv[1:]
with Telling(Path(folder), command) as session:
    session.run(experiment_of(Path(library), ["good", "hangs"]))
"""
_ENDING = {
    "the system's signal": "answering._read = lambda lines: [lines.put(line) for line in sys.stdin]",
    "the end of its input": "answering.end_with_parent = lambda: None",
}
"""What leaves a worker with one way to notice."""
_PATIENCE_S = 120.0


def has_ended(number: int) -> bool:
    """Return whether there is no such process any more; one that nobody has waited for yet has ended too."""
    try:
        status = Path(f"/proc/{number}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return status.rpartition(")")[2].split()[0] in "ZX"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not tell what a process does")
@pytest.mark.parametrize("how", _ENDING)
def test_a_parent_that_is_killed_while_a_candidate_hangs_leaves_no_process(tmp_path: Path, how: str) -> None:
    if how == "the system's signal" and sys.platform != "linux":
        pytest.skip("only Linux sends one")
    command = f"import sys\nfrom tuning import answering\n{_ENDING[how]}\nfrom tuning.worker import main; main()"
    folder = tmp_path / "session"
    folder.mkdir()
    arguments = [sys.executable, "-c", _PARENT, str(build_kernels(tmp_path)), str(folder), command]
    with Popen(arguments, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        number = next(int(line.split()[0]) for line in parent.stdout if "candidate=1" in line)
        assert not has_ended(number)
        parent.send_signal(signal.SIGKILL)
    until = time.monotonic() + _PATIENCE_S
    while not has_ended(number) and time.monotonic() < until:
        time.sleep(0.05)
    ended = has_ended(number)
    if not ended:
        os.kill(number, signal.SIGKILL)
    assert ended


def test_a_system_without_groups_ends_the_process_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_groups, "HAS_GROUPS", False)
    monkeypatch.setattr(process_groups, "os", SimpleNamespace())
    with Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        process_groups.kill_group(process)
    assert process.returncode
