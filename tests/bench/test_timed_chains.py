"""The chains, what is said of them before they run, and what becomes of the times."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from backends.machine_limits import Level, MachineLimits
from backends.tensorir.estimate import Estimate
from bench import inputs, peers
from bench.chains import measure, report
from bench.chains.draw import Drawing, DrawnChain, KernelWork
from bench.chains.measure import FORCED, UNFUSED, Timed, time_chains
from bench.chains.verdict import ChainVerdict, verdict
from bench.chains.workloads import chains, convs, gemms, inverted_residual, mlp
from bench.kernels.case import Case
from bench.kernels.measure import Measured
from bench.peers.engine import Job, Kernels
from bench.peers.forms import PeerForm
from bench.protocol import ComparisonPlan
from bench.result import ComparisonResult, EngineResult
from partition.techniques import Technique

MACHINE = MachineLimits(2, 100.0, (Level("L2", 2 << 20, 200.0), Level("memory", 0, 20.0)))
PEERS = ("onnxruntime", "openvino")
SMALL = {
    "gemm": gemms("small", (2, 24, 16, 16, 32), softmax=False),
    "attention": gemms("small", (2, 24, 16, 16, 32), softmax=True),
    "conv": convs("small", (3, 16, 8, 4, 2, 1, 3, 1), relu=True),
    "mlp": mlp("small", 8, 16, 32, "gelu"),
    "residual": inverted_residual(14, 16, 64, 16, 1),
}


def test_every_chain_comes_once() -> None:
    found = list(chains())
    assert len({chain.case.name for chain in found}) == len(found) == 2 * 12 + 2 * 8 + 5 + 11 + 11


def test_work_is_counted() -> None:
    chain = gemms("G", (2, 24, 8, 16, 32), softmax=True)
    first = KernelWork(2 * 2 * 24 * 16 * 32, 4 * 2 * (24 * 16 + 16 * 32 + 24 * 32))
    second = KernelWork(2 * 2 * 24 * 32 * 8, 4 * 2 * (24 * 32 + 32 * 8 + 24 * 8))
    assert chain.parts == (first, KernelWork(0, 4 * 2 * 2 * 24 * 32), second)
    assert chain.whole == KernelWork(first.flops + second.flops, 4 * 2 * (24 * 16 + 16 * 32 + 32 * 8 + 24 * 8))
    strided = convs("C", (3, 9, 8, 4, 2, 1, 3, 1), relu=False)
    assert [part.flops for part in strided.parts] == [2 * 8 * 25 * 27, 2 * 4 * 25 * 8]
    depthwise = inverted_residual(14, 16, 64, 24, 2).parts[2]
    assert depthwise.flops == 2 * 64 * 49 * 9


@pytest.mark.parametrize("name", SMALL)
def test_the_forms_of_a_chain_agree(name: str, tmp_path: Path) -> None:
    case = SMALL[name].case
    path = tmp_path / "chain.onnx"
    onnx.save(case.model, path)
    arrays = inputs.draw(case.inputs, seed=0)
    (expected,) = ort.InferenceSession(path).run(None, arrays)
    job = Job(path, {spec.name: spec.shape for spec in case.inputs}, threads=1)
    for engine in (UNFUSED, FORCED, peers.FORM):
        assert peers.installed(engine)
        assert not peers.compiles_ahead(engine)
        (found,) = peers.engine(engine).load(job, tmp_path)(arrays).values()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_an_engines_name_says_its_form() -> None:
    for form in (PeerForm(), PeerForm(forced=True), PeerForm(frozenset()), PeerForm(frozenset({Technique.STITCHING}))):
        assert PeerForm.of(str(form)) == form
    assert PeerForm.of(UNFUSED.removeprefix(peers.FORM)) == PeerForm(frozenset(Technique) - {Technique.INTENSIVE})
    assert PeerForm.of(FORCED.removeprefix(peers.FORM)) == PeerForm(forced=True)


def test_the_verdict_is_that_of_the_cost_tables() -> None:
    for name in ("gemm", "attention"):
        fused = verdict(SMALL[name].case.model, threads=2)
        assert fused.fused
        assert 0 < fused.together < fused.apart
    drawing = Drawing()
    depthwise = drawing.conv(drawing.input(1, 16, 14, 14), 16, 3, groups=16)
    windows = drawing.finish("two windows", "conv", drawing.conv(depthwise, 16, 3, groups=16))
    apart = verdict(windows.case.model, threads=2)
    assert not apart.fused
    assert apart.estimates == ()
    assert any("complex operator" in reason for reason in apart.reasons)
    pair = verdict(SMALL["residual"].case.model, threads=2)
    assert pair.fused == (pair.together < pair.apart)
    assert pair.together > 0


def timed(found: ChainVerdict, parts: Sequence[KernelWork] = (), **milliseconds: float) -> Timed:
    """Return a chain of two products with the times of these engines."""
    case = Case("G0 small", "gemm", onnx.ModelProto(), (), sum(part.flops for part in parts), 8 * 10**6, {})
    names = {"fusion": "fusion", "unfused": UNFUSED, "forced": FORCED, "ort": "onnxruntime", "ov": "openvino"}
    engines = {names[name]: EngineResult([value] * 3) for name, value in milliseconds.items()}
    measured = Measured(case, ComparisonResult(case.name, {}, 2, engines), Kernels(1, 1e-3))
    return Timed(DrawnChain(case, tuple(parts)), found, measured, PEERS)


FUSED = ChainVerdict(True, (Estimate(10, 20, 2),), ())
DECLINED = ChainVerdict(False, (Estimate(30, 20, 2),), ("30 cycles estimated in one kernel, 20 in two",))
NO_TEMPLATE = ChainVerdict(False, (), ("matmul1 is a complex operator",))


def test_forms_of_ours_are_no_peers() -> None:
    found = timed(FUSED, fusion=1.0, unfused=0.5, ort=3.0, ov=2.0)
    assert found.over_peer == pytest.approx(2)
    assert found.over_unfused == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("found", "gain", "ranked"),
    [
        (timed(FUSED, fusion=1.0, unfused=1.5), 1.5, True),
        (timed(FUSED, fusion=1.0, unfused=0.8), 0.8, False),
        (timed(FUSED, fusion=1.0, unfused=1.01), 1.01, None),
        (timed(DECLINED, fusion=1.0, forced=1.25), 0.8, True),
        (timed(DECLINED, fusion=1.0, forced=0.5), 2.0, False),
        (timed(NO_TEMPLATE, fusion=1.0), None, None),
        (timed(FUSED, fusion=1.0), None, None),
    ],
)
def test_a_rank_is_right_where_the_faster_form_is_the_one_estimated_to_be(
    found: Timed, gain: float | None, ranked: bool | None
) -> None:
    assert found.gain == (None if gain is None else pytest.approx(gain))
    assert found.ranked is ranked


def test_a_form_is_timed_only_where_it_differs_from_the_chosen_one(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"gemm": NO_TEMPLATE, "attention": FUSED, "residual": DECLINED}
    asked = {}

    def fake(cases: Sequence[Case], plan: ComparisonPlan) -> Iterator[Measured]:
        for case in cases:
            asked[case.name] = plan.peers
            yield Measured(case, ComparisonResult(case.name, {}, 1, {}), None)

    monkeypatch.setattr(measure, "measure", fake)
    monkeypatch.setattr(measure, "verdict", lambda model, threads: said[names[model.SerializeToString()]])
    names = {SMALL[name].case.model.SerializeToString(): name for name in said}
    some = [replace(SMALL[name], case=replace(SMALL[name].case, name=name)) for name in said]
    found = list(time_chains(some, ComparisonPlan(threads=1, peers=PEERS)))
    assert asked == {"gemm": PEERS, "attention": (UNFUSED, *PEERS), "residual": (FORCED, *PEERS)}
    assert {one.chain.case.name: one.verdict for one in found} == said


def test_the_room_is_what_the_peak_and_memory_leave() -> None:
    # 100 MFLOP at 100 GFLOP/s take 1 ms; 40 MB at 20 GB/s take 2, 8 MB 0.4.
    bound = timed(FUSED, [KernelWork(10**8, 4 * 10**7), KernelWork(10**8, 10**6)], fusion=1.0)
    assert report.room(bound, MACHINE) == pytest.approx((2 + 1) / 2)
    assert report.floor_us([KernelWork(0, 4 * 10**7)], MACHINE) == pytest.approx(2000)


def test_the_report_sums_up() -> None:
    work = [KernelWork(10**8, 10**6)] * 2
    some = [
        timed(FUSED, work, fusion=1.0, unfused=1.44, ort=2.0, ov=4.0),
        timed(DECLINED, work, fusion=1.0, forced=0.5, ort=4.0, ov=8.0),
        timed(NO_TEMPLATE, work, fusion=1.0, ort=1.0, ov=1.0),
    ]
    text = report.text(some, MACHINE)
    # 2 x 4 x 1 of the peers, 1.44 x 1 x 1 of the unfused form.
    assert "| all    | 3      | 1     | 2.00                 | 1.13         | 1.44        | 1.00 | 1 of 2 " in text
    assert "30 cycles estimated in one kernel, 20 in two" in text
    fields = json.loads(report.as_json(some, MACHINE))["chains"]
    assert [found["ranked"] for found in fields] == [True, False, None]
