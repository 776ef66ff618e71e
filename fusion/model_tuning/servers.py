"""Servers of TVM RPC that measure: found by their tracker, and put together by what they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi

from backends.host_features import differing_features, features_of
from fusion import context
from fusion.context import Context
from fusion.errors import OptionError, TargetError
from fusion.module.cpu_features import host_architecture, missing_features, needed_features, x86_features
from tuning.messages import Lost, ServerFacts
from tuning.served.agent import has_agent
from tuning.served.session import ServerSession
from tuning.served.tracker import Tracker, TrackerError

_ASK_S = 5.0
"""In which a tracker must have answered."""
_FREE_S = 15.0
"""In which a server must be free: it serves one session at a time."""
_THIS_MACHINE = "llvm"


@dataclass(frozen=True)
class ServerKind:
    """Servers with one kind of CPU, whose measurements say something of each other.

    Attributes:
        facts: What the first of them is.
        ctx: Of kernels for them.
        sessions: One for each.
    """

    facts: ServerFacts
    ctx: Context
    sessions: tuple[ServerSession, ...]

    @property
    def name(self) -> str:
        """What people call the CPU."""
        words = (line.partition(":") for line in self.facts.flags.splitlines())
        model = next((value.strip() for name, _, value in words if name.strip() == "model name"), self.facts.cpu)
        return f"{model}, {self.ctx.threads} thread{'s' * (self.ctx.threads > 1)}"

    @property
    def options(self) -> dict[str, Any]:
        """What makes the same kernels in `fusion.compile`."""
        return {"target": self.ctx.target, "threads": self.ctx.threads}

    def is_alike(self, other: ServerFacts) -> bool:
        """Whether a server is of this kind."""
        mine = self.facts
        return (mine.model, mine.cpu, mine.features) == (other.model, other.cpu, other.features)


def join_servers(tracker: Tracker, key: str, folder: Path) -> dict[ServerSession, ServerFacts]:
    """Return sessions on all servers of a key that are free, which are the caller's to close, and what each is.

    Raises:
        OptionError: This installation has nothing to measure with.
        TargetError: The tracker does not answer, or no server of the key is there and free.
    """
    if not has_agent():
        raise OptionError(
            "this installation measures on no server",
            why="the library that servers are sent was not compiled as fusion was installed",
            hint="install fusion again where there is a C compiler",
        )
    count = _count(tracker, key)
    sessions = [ServerSession(folder / f"server{place}", tracker, key) for place in range(count)]
    for session in sessions:
        session.ask(_FREE_S)
    answers = {session: session.joined() for session in sessions}
    joined = {session: answer for session, answer in answers.items() if isinstance(answer, ServerFacts)}
    if not joined:
        why = "; ".join(sorted({answer.why for answer in answers.values() if isinstance(answer, Lost)}))
        raise TargetError(
            f"no server of TVM RPC with the key {key!r} could be used, of {count} that {tracker} knows",
            why=why,
            hint="a server serves one session at a time: end what else uses it, or start another",
        )
    return joined


def kinds_of(
    joined: Mapping[ServerSession, ServerFacts], target: str | tvm.target.Target, precision: str, threads: int | None
) -> list[ServerKind]:
    """Return the servers by kind of CPU, with what makes kernels for each.

    Raises:
        TargetError: The target is unknown, or a server's CPU cannot run its code.
        OptionError: An option has a value that is not allowed.
    """
    kinds = list[ServerKind]()
    for session, facts in joined.items():
        place = next((place for place, kind in enumerate(kinds) if kind.is_alike(facts)), None)
        if place is None:
            kinds.append(ServerKind(facts, _context(facts, target, precision, threads), (session,)))
        else:
            kinds[place] = replace(kinds[place], sessions=(*kinds[place].sessions, session))
    return kinds


def _count(tracker: Tracker, key: str) -> int:
    try:
        keys = tracker.servers(_ASK_S)
    except TrackerError as error:
        raise TargetError(
            f"the tracker of TVM RPC at {tracker} does not answer",
            why=str(error),
            hint=f"start it: python -m tvm.exec.rpc_tracker --host 0.0.0.0 --port {tracker.port}",
        ) from error
    if key not in keys:
        others = ", ".join(sorted(set(keys))) or "no servers"
        raise TargetError(
            f"the tracker at {tracker} knows no server with the key {key!r}",
            why=f"it knows {others}",
            hint=f"start one: python -m tvm.exec.rpc_server --tracker {tracker} --key {key}",
        )
    return keys.count(key)


def _context(facts: ServerFacts, target: str | tvm.target.Target, precision: str, threads: int | None) -> Context:
    resolved = context.resolve(
        _host_target(facts) if target == _THIS_MACHINE else target,
        threads=threads or facts.threads, precision=precision, database=False,
    )  # fmt: skip
    _require_features(facts, resolved.target)
    return resolved


def _host_target(facts: ServerFacts) -> str:
    """Return the target of a server's own CPU, as a compilation there resolves it."""
    if not facts.cpu or not facts.features:
        raise TargetError(
            f"the server {facts.address} cannot tell its CPU",
            why="it has TVM's runtime without the compiler",
            hint="install apache-tvm of this version there, or name its CPU: target='llvm -mcpu=...'",
        )
    here = tvm_ffi.get_global_func("ffi.FromJSONGraphString")(facts.features)
    differing = differing_features(facts.cpu, here)
    return " ".join(["llvm", f"-mcpu={facts.cpu}", *([f"-mattr={','.join(differing)}"] if differing else [])])


def _require_features(facts: ServerFacts, target: tvm.target.Target) -> None:
    """Raise unless the server's CPU can run code for `target`, which is made and linked on this machine."""
    architecture = (facts.triple or host_architecture()).partition("-")[0]
    if architecture != host_architecture():
        raise TargetError(
            f"the server {facts.address} is a machine of another architecture, {architecture}",
            why=f"code for servers is linked here, on {host_architecture()}",
            hint="tune on a machine like the server",
        )
    needed = needed_features(architecture, features_of(target))
    missing = missing_features(needed, x86_features(facts.flags)) if architecture == "x86_64" else []
    if missing:
        raise TargetError(
            f"the CPU of the server {facts.address} cannot run code for {target.attrs.get('mcpu', target)}",
            why=f"it lacks {', '.join(missing)}",
            hint="leave the target out, for that of the server's CPU, or tune on servers that have these instructions",
        )


def names_of(kinds: Sequence[ServerKind]) -> list[str]:
    """Return what tells the kinds from each other in names of models; nothing where there is one."""
    return [""] if len(kinds) == 1 else [f" on {kind.name} ({kind.facts.address})" for kind in kinds]
