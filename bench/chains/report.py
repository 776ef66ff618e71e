"""The chains as a table and as JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from backends.machine_limits import MachineLimits
from bench import markdown
from bench.chains.draw import KernelWork
from bench.chains.measure import FORCED, UNFUSED, Timed
from bench.peers import OURS
from bench.result import RATIO, notes


def floor_us(parts: Sequence[KernelWork], machine: MachineLimits) -> float:
    """Return the least time of kernels that do `parts`, from and to memory."""
    return sum(max(part.flops / machine.peak_gflops, part.bytes / machine.bandwidth_gbs) / 1e3 for part in parts)


def room(timed: Timed, machine: MachineLimits) -> float:
    """Return how many times as fast one kernel can be at most, were everything between the kernels to go to memory."""
    return floor_us(timed.chain.parts, machine) / floor_us([timed.chain.whole], machine)


def text(chains: Sequence[Timed], machine: MachineLimits) -> str:
    """Return the whole report as Markdown."""
    lines = [
        f"{machine.threads} threads, float32. FMA peak {machine.peak_gflops:.0f} GFLOP/s, memory "
        f"{machine.bandwidth_gbs:.1f} GB/s; measured in this run.",
        "",
        f"fusion = the form it chooses; unfused = without kernels of several anchors; forced = with them wherever a "
        f"template takes them; empty where the form is the chosen one, or no template takes the chain. over = {RATIO}, "
        "and likewise of the unfused form. room = how many times as fast one kernel can be at most: operations at the "
        "FMA peak, every kernel's operands and results from and to memory. ranked right = the cost tables choose the "
        "form that is faster by more than 3%.",
        "",
        markdown.table(_SUMMARY, [_summary_row(name, group, machine) for name, group in _groups(chains)]),
        "",
        _table(chains, machine),
        *(line for timed in chains for line in notes(timed.measured.result, load=False) if line),
    ]
    return "\n".join(lines) + "\n"


_SUMMARY = ("chains", "number", "fused", "over the better peer", "over unfused", "where fused", "room", "ranked right")


def _groups(chains: Sequence[Timed]) -> Iterator[tuple[str, list[Timed]]]:
    yield "all", list(chains)
    for family in dict.fromkeys(timed.chain.case.family for timed in chains):
        yield family, [timed for timed in chains if timed.chain.case.family == family]


def _summary_row(name: str, chains: Sequence[Timed], machine: MachineLimits) -> markdown.Row:
    fused = [timed for timed in chains if timed.verdict.fused]
    ranks = [timed.ranked for timed in chains if timed.ranked is not None]
    return (
        name,
        str(len(chains)),
        str(len(fused)),
        _mean([timed.over_peer for timed in chains]),
        _mean([timed.over_unfused for timed in chains]),
        _mean([timed.over_unfused for timed in fused]),
        _mean([room(timed, machine) for timed in chains]),
        f"{sum(ranks)} of {len(ranks)}" if ranks else "",
    )


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.geometric_mean(known):.2f}" if known else ""


def _table(chains: Sequence[Timed], machine: MachineLimits) -> str:
    peers = chains[0].peers if chains else ()
    header = (
        "chain", "MFLOP", "fused", "fusion us", "unfused us", "forced us", *(f"{peer} us" for peer in peers),
        "over peer", "over unfused", "room", "estimates, kcycles", "ranked right", "right", "why not",
    )  # fmt: skip
    return markdown.table(header, [_row(timed, machine) for timed in chains])


def _row(timed: Timed, machine: MachineLimits) -> markdown.Row:
    verdict = timed.verdict
    together, apart = verdict.together / 1e3, verdict.apart / 1e3
    return (
        timed.chain.case.name,
        f"{timed.chain.case.flops / 1e6:.1f}",
        "yes" if verdict.fused else "no",
        *(_latency(timed, name) for name in (OURS, UNFUSED, FORCED, *timed.peers)),
        markdown.number(timed.over_peer, ".2f"),
        markdown.number(timed.over_unfused, ".2f"),
        f"{room(timed, machine):.2f}",
        f"{together:.0f} / {apart:.0f}" if verdict.estimates else "",
        "" if timed.ranked is None else "yes" if timed.ranked else "NO",
        "yes" if timed.measured.result.passed else "NO",
        "" if verdict.fused else "; ".join(verdict.reasons),
    )


def _latency(timed: Timed, engine: str) -> str:
    found = timed.measured.result.engines.get(engine)
    return "" if found is None or found.latency_ms is None else f"{found.latency_ms * 1e3:.1f}"


def as_json(chains: Sequence[Timed], machine: MachineLimits) -> str:
    """Return the report as JSON."""
    return json.dumps({"machine": asdict(machine), "chains": [_fields(timed, machine) for timed in chains]}, indent=1)


def _fields(timed: Timed, machine: MachineLimits) -> dict[str, Any]:
    case, verdict = timed.chain.case, timed.verdict
    return {
        "name": case.name, "family": case.family, "flops": case.flops, "bytes": case.bytes, "fused": verdict.fused,
        "together": verdict.together, "apart": verdict.apart, "reasons": verdict.reasons, "ranked": timed.ranked,
        "over_peer": timed.over_peer, "over_unfused": timed.over_unfused, "gain": timed.gain,
        "room": room(timed, machine), "kernels_s": timed.measured.kernels_s, **timed.measured.result.as_dict(),
    }  # fmt: skip
