"""`python -m bench.devices.links`: models on servers of TVM RPC behind a slow link, and what becomes of a lost one.

Each of two servers is in a network namespace of its own, bound to one CPU. `tc` limits the link to it to 1 Gbit/s each
way, and a relay delays each byte by 1 ms each way. Where the system lets this process make no namespaces, the relay
limits the rate, too.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field

from bench import command, markdown, zoo
from bench.devices.live import MODULE
from bench.devices.relay import Relay
from bench.devices.rpc_servers import KEY, RpcServerProcess
from bench.devices.two_modules import add_options, same_results
from bench.remote import EngineError, RemoteProcess
from fusion.options import FAST
from fusion.system.cpus import cpu_numbers

_MODELS = ("resnet50", "mobilevit_s")
_INPUTS = 4
_DEADLINE_S = 300.0
_SERVER_PORT, _RELAY_PORT = 9090, 9190
_BEFORE_LOSS_S = 2.0
_numbers = itertools.count()


class SlowLink:
    """A server behind a slow link; use as a context manager.

    Attributes:
        target: What names the server as a device.
        kind: What makes the link slow.
    """

    def __init__(self, cpu: int, latency_us: float, gbs: float) -> None:
        """The server is bound to a CPU; `latency_us` and `gbs`, 1e9 bytes a second, are each way."""
        self._latency_us, self._gbs = latency_us, gbs
        # Of one that is gone the system keeps the device a while.
        unique = next(_numbers)
        self._name, self._net = f"fusion{os.getpid()}-{unique}", f"10.213.{unique % 256}"
        self._devices = f"vo{os.getpid()}-{unique}", f"vi{os.getpid()}-{unique}"
        self._bind = ("taskset", "-c", str(cpu))
        self._cut: tuple[str, ...] = ()
        self._open = contextlib.ExitStack()

    def __enter__(self) -> SlowLink:
        with self._open:
            try:
                self._open_namespace()
            except (OSError, subprocess.CalledProcessError):
                self._open.close()
                self._open_relay()
            self._open = self._open.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _open_namespace(self) -> None:
        outside, inside = self._devices
        within = ("ip", "netns", "exec", self._name)
        _run("ip", "netns", "add", self._name)
        self._open.callback(_run, "ip", "netns", "del", self._name)
        _run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", self._name)
        _run("ip", "addr", "add", f"{self._net}.1/30", "dev", outside)
        _run("ip", "link", "set", outside, "up")
        for words in (f"addr add {self._net}.2/30 dev {inside}", f"link set {inside} up", "link set lo up"):
            _run(*within, "ip", *words.split())
        limit = f"root tbf rate {self._gbs * 8e9:.0f}bit burst 256kb latency 100ms".split()
        _run("tc", "qdisc", "add", "dev", outside, *limit)
        _run(*within, "tc", "qdisc", "add", "dev", inside, *limit)
        self._server = RpcServerProcess(port=_SERVER_PORT, before=(*within, *self._bind))
        self._open.callback(self._server.end)
        relay = subprocess.Popen([
            *within, sys.executable, "-m", "bench.devices.relay", f"0.0.0.0:{_RELAY_PORT}", f"127.0.0.1:{_SERVER_PORT}",
            "--latency-us", str(self._latency_us),
        ])  # fmt: skip
        self._open.callback(relay.wait)
        self._open.callback(relay.kill)
        self._server.wait()
        self._cut = ("ip", "link", "set", outside, "down")
        self.target, self.kind = f"rpc://{self._net}.2:{_RELAY_PORT}/{KEY}", "tc in a namespace, delay by a relay"

    def _open_relay(self) -> None:
        self._server = RpcServerProcess(before=self._bind)
        self._open.callback(self._server.end)
        self._server.wait()
        relay = Relay(("127.0.0.1", self._server.port), latency_us=self._latency_us, gbs=self._gbs)
        self._open.enter_context(relay)
        self.target, self.kind = f"rpc://127.0.0.1:{relay.port}/{KEY}", "a relay"

    def kill(self) -> None:
        """Kill the server."""
        self._server.end()

    def cut(self) -> bool:
        """Take the link away; False where only `kill` is possible."""
        if self._cut:
            _run(*self._cut)
        return bool(self._cut)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


@dataclass
class Linked:
    """One model on some devices.

    Attributes:
        devices: As targets name them.
        link: What makes the links slow.
        stream: What a stream runs on.
        expected: Milliseconds that the plans expect, by objective.
        stream_ms, call_ms: Milliseconds between results of a stream, and of a call, a round each.
        right: Whether its results are those of the model here.
    """

    model: str
    devices: str
    link: str
    stream: str
    expected: dict[str, float]
    right: bool
    stream_ms: list[float] = field(default_factory=list)
    call_ms: list[float] = field(default_factory=list)


@dataclass
class Loss:
    """What became of a stream whose server was lost.

    Attributes:
        how: It was lost.
        seconds: Until the error.
        error: Its text.
    """

    how: str
    seconds: float
    error: str


def main() -> int:
    """Return 0 if all results are right and losses are told within 5 s, else 1."""
    options = _parser().parse_args()
    found, losses = list[Linked](), list[Loss]()
    for name in options.models or _MODELS:
        for kind in options.kinds:
            with _links(options) as links:
                found.append(measure(name, _targets(kind, links, options.memory), links[0].kind, options))
            print(_line(found[-1]), file=sys.stderr, flush=True)
    for how in ("killed", "cut off") if options.lost else ():
        with _links(options) as links:
            losses += lose(options.lost, links, how)
    report = text(found, losses, options)
    data = {"models": [asdict(each) for each in found], "losses": [asdict(each) for each in losses]}
    command.write(options.out, "devices-links", report, json.dumps(data, indent=1))
    return 0 if all(each.right for each in found) and all(each.seconds < 5 for each in losses) else 1


@contextlib.contextmanager
def _links(options: argparse.Namespace) -> Iterator[list[SlowLink]]:
    with contextlib.ExitStack() as stack:
        cpus = cpu_numbers()
        yield [
            stack.enter_context(SlowLink(cpus[number % len(cpus)], options.latency_us, options.gbs))
            for number in range(2)
        ]


def _targets(kind: str, links: Sequence[SlowLink], memory: str) -> list[str]:
    if kind == "local":
        return [f"llvm:{cpu_numbers()[0]}", links[1].target]
    limit = f"?memory={memory}" if kind == "limited" else ""
    return [link.target + limit for link in links]


def measure(name: str, targets: Sequence[str], link: str, options: argparse.Namespace) -> Linked:
    """Return what the zoo model `name` does on these devices, and what was expected of it."""
    model = zoo.make(name)
    inputs = [model.inputs(seed) for seed in range(_INPUTS)]
    with RemoteProcess(MODULE) as divided, RemoteProcess(MODULE) as whole:
        for process, where in ((divided, targets), (whole, cpu_numbers()[0])):
            process.ask(_DEADLINE_S, "compile", model.path, model.shapes, options.effort, where)
            process.ask(_DEADLINE_S, "take", inputs)
        expected, stream = divided.ask(_DEADLINE_S, "plans")
        right = all(map(same_results, divided.ask(_DEADLINE_S, "outputs"), whole.ask(_DEADLINE_S, "outputs")))
        found = Linked(
            model=name, devices=" ".join(targets), link=link, stream=stream, expected=expected, right=right
        )
        for _ in range(options.rounds):
            found.stream_ms.append(1e3 / divided.ask(_DEADLINE_S, "stream", options.seconds))
            found.call_ms.append(1e3 / divided.ask(_DEADLINE_S, "calls", options.seconds))
    return found


def lose(name: str, links: Sequence[SlowLink], how: str) -> Iterator[Loss]:
    """Yield how long a stream takes to tell that its second server was lost."""
    model = zoo.make(name)
    with RemoteProcess(MODULE) as divided:
        targets = [link.target for link in links]
        divided.ask(_DEADLINE_S, "compile", model.path, model.shapes, FAST, targets)
        divided.ask(_DEADLINE_S, "take", [model.inputs(0)])
        divided.begin("stream", _DEADLINE_S)
        time.sleep(_BEFORE_LOSS_S)
        if how == "killed":
            links[1].kill()
        elif not links[1].cut():
            return
        started = time.perf_counter()
        try:
            divided.end(_DEADLINE_S)
        except EngineError as error:
            yield Loss(how, time.perf_counter() - started, str(error))


def text(found: Sequence[Linked], losses: Sequence[Loss], options: argparse.Namespace) -> str:
    """Return the report as Markdown."""
    header = (
        "model", "devices", "link", "stream on", "expected, ms", "measured, ms", "off by", "call expected, ms",
        "measured, ms", "off by", "right",
    )  # fmt: skip
    return "\n".join([
        f"Links of {options.gbs * 8:g} Gbit/s and {options.latency_us:g} us each way; medians over rounds.",
        "",
        markdown.table(header, [_row(each) for each in found]),
        "",
        *(f"A server that is {each.how}: an error after {each.seconds:.2f} s: {each.error}" for each in losses),
        "",
    ])  # fmt: skip


def _row(each: Linked) -> markdown.Row:
    cells = []
    for objective, measured in (("throughput", each.stream_ms), ("latency", each.call_ms)):
        median = statistics.median(measured)
        cells += [f"{each.expected[objective]:.2f}", f"{median:.2f}", f"{each.expected[objective] / median - 1:+.1%}"]
    return each.model, each.devices, each.link, each.stream, *cells, "yes" if each.right else "NO"


def _line(each: Linked) -> str:
    return " | ".join(_row(each))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.devices.links", description=__doc__)
    add_options(parser, _MODELS, rounds=3, measurements="two")
    parser.add_argument(
        "--kinds", nargs="*", default=["servers", "limited", "local"], choices=["servers", "limited", "local"],
        help="two servers; two with --memory each, so that the model is cut; a CPU here and a server",
    )  # fmt: skip
    parser.add_argument("--memory", default="150M", help="of each server where it is limited")
    parser.add_argument("--lost", default="squeezenet", metavar="MODEL", help="that runs when a server is lost; or ''")
    parser.add_argument("--latency-us", type=float, default=1000.0)
    parser.add_argument("--gbs", type=float, default=0.125)
    return parser


if __name__ == "__main__":
    command.run(main)
