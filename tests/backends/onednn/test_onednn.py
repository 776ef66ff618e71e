"""What is oneDNN's own: how it is found, what it is told to compute, and what a call leaves as it was."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from importlib import metadata
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import fusion
from backends.onednn import wheels
from backends.onednn.work import is_worth_sharing
from fusion.errors import NotInstalledError
from fusion.system.cpus import allowed_cpus
from tests.forked import answer_of_child
from tests.module.small_models import FLOAT, mlp, mlp_numpy, model
from tests.naps import busy_nap

pytestmark = pytest.mark.usefixtures("one_process_apart")
ROWS = (128, 512)
X = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)


def compiled() -> fusion.CompiledModule:
    return fusion.compile(mlp(), backends=["onednn", "cpu"], threads=2, cache=False)


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def distribution(name: str) -> object:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(wheels, "distribution", distribution)


@pytest.mark.usefixtures("missing")
def test_where_it_is_not_installed_it_runs_nothing() -> None:
    module = compiled()
    packages = "onednn-cpu-iomp intel-openmp intel-cmplr-lib-rt"
    assert f"the backend 'onednn' is not installed and runs nothing; pip install {packages}" in module.explain()
    np.testing.assert_allclose(module(X)[0], mlp_numpy(X), rtol=1e-5, atol=1e-6)


class TestInstalled:
    """With its wheels."""

    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        try:
            wheels.version()
        except PackageNotFoundError as error:
            pytest.skip(f"{error} is not installed")

    def test_its_version_says_of_which_wheel_each_number_is(self) -> None:
        own = metadata.version("onednn-cpu-iomp")
        others = ", ".join(f"{each} {metadata.version(each)}" for each in ("intel-cmplr-lib-rt", "intel-openmp"))
        assert wheels.version() == f"{own} ({others})"

    def test_a_saved_module_says_what_it_lacks(self, tmp_path: Path, request: pytest.FixtureRequest) -> None:
        compiled().save(tmp_path / "saved.fusion")
        request.getfixturevalue("missing")
        with pytest.raises(NotInstalledError, match="pip install onednn-cpu-iomp"):
            fusion.load(tmp_path / "saved.fusion")

    def test_a_saved_module_runs_without_the_compiler(self, tmp_path: Path) -> None:
        compiled().save(tmp_path / "saved.fusion")
        code = f"import sys, numpy, fusion; fusion.load({str(tmp_path / 'saved.fusion')!r})(numpy.ones((3, 8), 'f4')); "
        code += "assert 'backends.onednn.executable' in sys.modules and 'tvm' not in sys.modules"
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_explain_names_what_it_runs(self) -> None:
        text = compiled().explain()
        assert "onednn runs 3 of 3 operators in 1 region: 2 matmul, 1 nn.relu" in text

    def test_its_parts_have_the_operators_of_the_model(self) -> None:
        parts = compiled().placement.parts
        assert [(part.backend, part.operators) for part in parts] == [
            ("onednn", ("matmul", "nn.relu", "matmul"))
        ]  # fmt: skip
        assert parts[0].names[-1] == "y"

    def test_behind_our_kernels_it_runs_nothing(self) -> None:
        assert fusion.compile(mlp(), backends=["cpu", "onednn"], cache=False).placement.backends == ("cpu",)

    def test_a_form_for_all_sizes_keeps_to_our_kernels(self) -> None:
        module = fusion.compile(mlp("n"), backends=["onednn", "cpu"], threads=2, cache=False)
        for batch in (1, 4, 7):
            x = np.random.default_rng(batch).standard_normal((batch, 8)).astype(np.float32)
            np.testing.assert_allclose(module(x, wait=True)[0], mlp_numpy(x), rtol=1e-4, atol=1e-5)
        assert "onednn runs no region: their models are for one size of each dimension" in module.explain()

    def test_a_call_leaves_settings_as_they_were(self) -> None:
        from backends.onednn.api import onednn

        environment = dict(os.environ)
        openmp = onednn().threads._openmp
        openmp.omp_set_num_threads(3)
        openmp.kmp_set_blocktime(17)
        compiled()(X)
        assert openmp.omp_get_max_threads() == 3
        assert openmp.kmp_get_blocktime() == 17
        assert dict(os.environ) == environment

    def test_threads_are_woken_elsewhere_than_where_their_caller_runs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where the scheduler puts both on one CPU, a call on two threads took longer than on one."""
        if not 1 < allowed_cpus() <= 8:
            pytest.skip("they are barred from a CPU where there are 2 to 8")
        told: list[tuple[int, frozenset[int]]] = []
        tell = os.sched_setaffinity

        def note(thread: int, cpus: set[int]) -> None:
            told.append((thread, frozenset(cpus)))
            tell(thread, cpus)

        weights = {"w": np.ones((512, 512), np.float32)}
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
        proto, x = model([node], [("x", FLOAT, ROWS)], [("y", FLOAT, ROWS)], weights), np.ones(ROWS, np.float32)
        module = fusion.compile(proto, backends=["onednn", "cpu"], threads=2, cache=False)
        module(x)
        monkeypatch.setattr(os, "sched_setaffinity", note)
        module(x)
        everywhere = frozenset(os.sched_getaffinity(0))
        (worker, barred), (same, back) = told
        assert worker == same != threading.get_native_id()
        assert (len(everywhere - barred), back) == (1, everywhere)
        assert busy_nap(lambda: module(x), 0.1, settle=0.0, enough=0.03) < 0.03

    def test_an_interrupt_leaves_threads_where_they_might_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """One that comes while they are barred from a CPU kept them from it for good."""
        if not 1 < allowed_cpus() <= 8:
            pytest.skip("they are barred from a CPU where there are 2 to 8")
        from backends.onednn.api import onednn

        barred: list[int] = []
        tell = os.sched_setaffinity

        def interrupt(thread: int, cpus: set[int]) -> None:
            tell(thread, cpus)
            barred.append(thread)
            if len(barred) == 1:
                raise KeyboardInterrupt

        monkeypatch.setattr(os, "sched_setaffinity", interrupt)
        with pytest.raises(KeyboardInterrupt), onednn().threads.team(2):
            pass
        assert os.sched_getaffinity(barred[0]) == os.sched_getaffinity(0)

    def test_what_is_short_runs_on_one_thread(self) -> None:
        """A team takes 80 us to wake and to sleep."""
        from backends.onednn.operation import SRC, WEIGHTS, Operation, PrimitiveOperand, PrimitiveSequence

        def product(rows: int) -> PrimitiveSequence:
            operands = PrimitiveOperand(SRC, (rows, 256), 0), PrimitiveOperand(WEIGHTS, (256, 256), -1)
            return PrimitiveSequence(((rows, 256),), (Operation("matmul", operands, (rows, 256), (rows, 256)),), (1,))

        assert [is_worth_sharing(product(rows)) for rows in (4, 64, 256, 1024)] == [False, False, True, True]

        windows = PrimitiveOperand(WEIGHTS, (64, 64, 3, 3), -1)
        depthwise = PrimitiveOperand(WEIGHTS, (64, 1, 1, 3, 3), -1)
        for weights, shares in ((windows, True), (depthwise, False)):
            image = (1, 64, 28, 28)
            made = Operation("convolution", (PrimitiveOperand(SRC, image, 0), weights), image, image)
            assert is_worth_sharing(PrimitiveSequence((image,), (made,), (1,))) == shares

    def test_what_it_has_no_primitive_for_is_an_error(self) -> None:
        from backends.onednn.api import OneDnnError, onednn
        from backends.onednn.operation import SRC, WEIGHTS, Operation, PrimitiveOperand
        from backends.onednn.primitives import describe

        uneven = Operation(
            "matmul", (PrimitiveOperand(SRC, (2, 3), 0), PrimitiveOperand(WEIGHTS, (4, 5), 1)), (2, 5), (2, 5)
        )
        with pytest.raises(OneDnnError, match="dnnl_matmul_primitive_desc_create: invalid_arguments"):
            describe(onednn(), uneven)

    def test_constants_are_reordered_once(self) -> None:
        """A product of constant weights is one primitive in a call, without a reorder."""
        from backends.onednn.api import onednn
        from backends.onednn.executable import Executable
        from backends.onednn.operation import (
            FREE,
            SRC,
            WEIGHTS,
            Operation,
            PrimitiveOperand,
            PrimitiveSequence,
            deserialize,
        )

        weights = np.random.default_rng(1).standard_normal((64, 80)).astype(np.float32)
        operands = PrimitiveOperand(SRC, (16, 64), 0), PrimitiveOperand(WEIGHTS, (64, 80), -1, FREE)
        sequence = PrimitiveSequence(((16, 64),), (Operation("matmul", operands, (16, 80), (16, 80)),), (1,))
        data = sequence.serialize({(0, WEIGHTS): weights})
        assert weights.tobytes() in data, "a saved module has them as they are"
        executable = Executable(onednn(), *deserialize(data), 2)
        x = np.random.default_rng(2).standard_normal((16, 64)).astype(np.float32)
        np.testing.assert_allclose(executable([x])[0], x @ weights, rtol=1e-4, atol=1e-5)
        assert len(executable.plan.steps) == 1

    def test_it_runs_in_a_forked_process(self) -> None:
        module = compiled()
        wanted = module(X)[0]
        assert answer_of_child(lambda: np.array_equal(module(X)[0], wanted))
