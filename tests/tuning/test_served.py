"""Points measured on servers of TVM RPC, which may be lost, busy, unlike each other, or not there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import tvm_ffi

import fusion
from bench.devices.rpc_servers import KEY, RpcServerProcess, free_port
from bench.devices.tracker import TrackerThread
from fusion import context
from fusion.cli import main
from fusion.errors import DeviceLostError, OptionError, TargetError
from fusion.model_tuning import served_run, servers
from fusion.model_tuning.tuning import Tuning
from tests import without_torch
from tests.tuning.kernels import build_kernels, experiment_of
from tests.tuning.test_tune_models import deeper, model, records
from tuning import search
from tuning.known import environment_of
from tuning.limits import Limits
from tuning.messages import ServerFacts, Trial
from tuning.served import pool
from tuning.served.agent import has_agent
from tuning.served.session import ServerSession
from tuning.served.tracker import Tracker, TrackerError
from tuning.task import KERNEL

pytestmark = pytest.mark.skipif(not has_agent(), reason="the library that servers are sent was not compiled")


@dataclass(frozen=True)
class Board:
    """A tracker, and servers that it knows."""

    tracker: TrackerThread
    servers: list[RpcServerProcess]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.tracker.port}"

    def await_free(self, count: int) -> None:
        ends = time.monotonic() + 60.0
        while self.tracker.free(KEY) != count:
            assert time.monotonic() < ends
            time.sleep(0.05)

    def tune(self, given: object, database: Path, **options: object) -> Tuning:
        return fusion.tune(given, database=database, rpc=self.address, key=KEY, **{"threads": 1, **options})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def board() -> Iterator[Board]:
    with TrackerThread() as tracker:
        made = [RpcServerProcess(environment=without_torch.environment(), tracker=tracker.port) for _ in range(2)]
        try:
            for each in made:
                each.wait()
            yield Board(tracker, made)
        finally:
            for each in made:
                each.end()


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_run, "SEARCHED", Limits(points=3, together=2))
    monkeypatch.setattr(search, "LEAST_GAIN", -1.0)  # all of them
    monkeypatch.setattr(pool, "_REJOIN_S", 0.5)
    monkeypatch.setattr(servers, "_FREE_S", 20.0)


def test_bad_candidates_end_neither_the_server_nor_the_session(board: Board, tmp_path: Path) -> None:
    board.await_free(2)
    library = build_kernels(tmp_path)
    session = ServerSession(tmp_path / "session", Tracker("127.0.0.1", board.tracker.port), KEY, 1.0)
    session.ask(20.0)
    joined = session.joined()
    assert isinstance(joined, ServerFacts), joined
    results = session.run(experiment_of(library, ["good", "faults", "hangs", "grows", "writes", "good"]))
    assert results.crashed == [Trial(0, 3), Trial(0, 2), Trial(0, 1)], results
    assert (results.failure, results.lost) == ("", "")
    assert {times.candidate for times in results.decisions[0].times} == {0, 4, 5}
    assert all(times.seconds > 0 for times in results.decisions[0].times)
    session.close()
    board.await_free(2)


def test_what_servers_are_is_what_this_machine_is(board: Board, tmp_path: Path) -> None:
    """Of a server here, records are those that this machine's own compilations look for."""
    board.await_free(2)
    tuned = board.tune(model(), tmp_path / "records")
    assert tuned.points > 3
    assert tuned.lost == []
    assert tuned.models[0].times is not None
    found = records(tmp_path / "records", KERNEL)
    mine = environment_of(context.resolve(threads=1).compiler)
    assert all(each.task.environment == mine for each in found)
    assert not any(each.failed for each in found)


def test_a_server_that_is_lost_costs_nothing_and_the_last_one_is_told(board: Board, tmp_path: Path) -> None:
    board.await_free(2)

    def kill(number: int, state: Tuning) -> None:
        """Before the first points are measured: both servers are asked for some."""
        if not state.rounds:
            board.servers[number].end()

    tuned = board.tune(model(), tmp_path / "records", on_progress=lambda state: kill(0, state))
    assert len(tuned.lost) == 1
    assert "a server was lost" in str(tuned)
    assert tuned.points > 0
    assert tuned.models[0].expected == 0, "all that was to be measured was"
    before = len(records(tmp_path / "records", KERNEL))
    with pytest.raises(DeviceLostError, match="no server of TVM RPC is left") as lost:
        board.tune(deeper(), tmp_path / "records", on_progress=lambda state: kill(1, state))
    assert "goes on there" in lost.value.hint
    assert len(records(tmp_path / "records", KERNEL)) >= before
    with pytest.raises(TargetError, match="knows no server with the key"):
        board.tune(model(), tmp_path / "records")


def test_what_is_no_tracker_or_no_server_is_told(tmp_path: Path) -> None:
    def refused(rpc: str, key: str | None) -> None:
        fusion.tune(model(), database=tmp_path / "records", rpc=rpc, key=key)

    with pytest.raises(TargetError, match=r"does not answer(.|\n)*python -m tvm.exec.rpc_tracker"):
        refused(f"127.0.0.1:{free_port()}", "board")
    with TrackerThread() as tracker:
        with pytest.raises(TargetError, match=r"no server with the key 'board'(.|\n)*python -m tvm.exec.rpc_server"):
            refused(f"127.0.0.1:{tracker.port}", "board")
        with pytest.raises(TrackerError):
            Tracker("127.0.0.1", tracker.port).request("board", 0.1)
    for rpc, key in (("127.0.0.1:9190", None), ("127.0.0.1", "board"), (":9190", "board"), ("host:no", "a")):
        with pytest.raises(OptionError, match="rpc="):
            refused(rpc, key)
    assert main(["tune", "some.onnx", "--rpc", "host:9190"]) == 2
    assert main(["tune", "--machine", "--rpc", "host:9190", "--key", "board"]) == 2


def facts(**changes: str) -> ServerFacts:
    features = tvm_ffi.get_global_func("tvm.codegen.llvm.GetHostCPUFeatures")()
    text = tvm_ffi.get_global_func("ffi.ToJSONGraphString")(features, None)
    return replace(ServerFacts("host:1", "a CPU", "", 2, "znver3", "", str(text)), **changes)  # type: ignore[arg-type]


def test_servers_of_other_cpus_are_kinds_of_their_own(tmp_path: Path) -> None:
    tracker = Tracker("host", 1)
    some = [facts(), facts(address="host:2"), facts(model="another CPU", cpu="skylake-avx512")]
    joined = {ServerSession(tmp_path / str(place), tracker, KEY): each for place, each in enumerate(some)}
    first, other = servers.kinds_of(joined, "llvm", "fp32", None)
    assert [len(first.sessions), len(other.sessions)] == [2, 1]
    assert (first.ctx.threads, first.is_alike(some[1]), first.is_alike(some[2])) == (2, True, False)
    assert environment_of(first.ctx.compiler, "a CPU") != environment_of(other.ctx.compiler, "another CPU")
    with pytest.raises(TargetError, match="install apache-tvm"):
        servers.kinds_of({next(iter(joined)): facts(cpu="")}, "llvm", "fp32", 1)
    with pytest.raises(TargetError, match=r"cannot run code for haswell(.|\n)*avx2"):
        servers.kinds_of({next(iter(joined)): facts(flags="flags : fpu pni")}, "llvm -mcpu=haswell", "fp32", 1)
    with pytest.raises(TargetError, match="another architecture"):
        servers.kinds_of({next(iter(joined)): facts(triple="riscv64-linux-gnu")}, "llvm", "fp32", 1)
