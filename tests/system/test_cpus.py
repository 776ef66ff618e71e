"""Which CPUs a process has, and how much of their time: what the system tells, written to a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusion import context
from fusion.system import control_groups, cpus

CGROUP_2 = {"membership": "0::/jobs/one\n"}
CGROUP_1 = {
    "membership": "7:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n",
    "groups/cpu/cpu.cfs_period_us": "100000\n",
}


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four CPUs on two cores, in no control group."""
    monkeypatch.setattr(cpus, "_TOPOLOGY", tmp_path / "cpu")
    monkeypatch.setattr(control_groups, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(control_groups, "_MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(cpus, "cpu_numbers", lambda: [0, 1, 2, 3])
    write(tmp_path, {f"cpu/cpu{n}/topology/thread_siblings_list": f"{n % 2},{n % 2 + 2}\n" for n in range(4)})
    return tmp_path


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_a_thread_for_each_core(system: Path) -> None:
    assert (cpus.allowed_cpus(), cpus.allowed_cores(), cpus.default_threads()) == (4, 2, 2)


def test_cpus_of_which_the_system_tells_no_core(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpus, "_TOPOLOGY", system / "nowhere")
    assert cpus.default_threads() == 4


@pytest.mark.parametrize(
    ("files", "quota", "threads"),
    [
        ({}, float("inf"), 2),
        (CGROUP_2 | {"groups/cpu.max": "max 100000\n"}, float("inf"), 2),
        (CGROUP_2 | {"groups/jobs/one/cpu.max": "150000 100000\n"}, 1.5, 1),
        (CGROUP_2 | {"groups/jobs/one/cpu.max": "max 100000\n", "groups/jobs/cpu.max": "50000 100000\n"}, 0.5, 1),
        ({"membership": "0::/\n", "groups/cpu.max": "800000 100000\n"}, 8.0, 2),
        (CGROUP_1 | {"groups/cpu/cpu.cfs_quota_us": "100000\n"}, 1.0, 1),
        (CGROUP_1 | {"groups/cpu/cpu.cfs_quota_us": "-1\n"}, float("inf"), 2),
        ({"membership": "nonsense\n4:cpu\n", "groups/cpu.max": "a b c\n"}, float("inf"), 2),
    ],
    ids=["none", "no quota", "its own", "of the group around it", "more than cores", "version 1", "-1", "nonsense"],
)
def test_the_quota_of_a_container(system: Path, files: dict[str, str], quota: float, threads: int) -> None:
    write(system, files)
    assert (cpus.cpu_quota(), cpus.default_threads()) == (quota, threads)


def test_threads_of_a_context_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "default_threads", lambda: 3)
    assert context.resolve("llvm").threads == 3
    assert context.resolve("llvm", threads=2).threads == 2
