"""RNN, GRU and LSTM over a whole sequence: the template's loops and plain ones, against float64."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import tvm
from tvm import relax, s_tir
from tvm.s_tir.stmt import SBlock
from tvm_ffi.structural import structural_walk

import fusion
from backends.cpu.kernels.recurrent import TEMPLATE
from backends.cpu.kernels.recurrent.plan import RecurrentPlan, recurrent_space
from backends.cpu.kernels.recurrent.read import RecurrentKernel, read_recurrent
from backends.cpu.machine import Machine
from backends.cpu.schedule import schedule
from backends.tensorir.kernel_info import kernel_info
from backends.tensorir.repack_weights import repack_weights
from backends.tensorir.result import Kernel
from backends.tensorir.space import Space
from fusion import context
from fusion.frontends.recurrence import RecurrenceSizes, call_recurrence, recurrence_func
from partition.access import MappingKind, read_access
from partition.recurrence import ACTIVATIONS, LENGTHS, Recurrence, recurrence_of
from tests.backends.cpu.kernels.anchored import TARGETS, Ran, build_scheduled, check
from tests.backends.cpu.kernels.templates import schedule_with
from tests.frontends.test_recurrent_layers import layer
from tests.passes.modules import build_alone, execute

DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
DIRECTIONS = {"forward": (False,), "reverse": (True,), "both": (False, True)}
Arrays = dict[str, np.ndarray]
Activation = Callable[[np.ndarray], np.ndarray]
MOST = 4
"""Points of a space that are run, spread over it."""


@dataclass(frozen=True)
class Case:
    """A recurrence with numbers for all its operands."""

    recurrence: Recurrence
    sizes: RecurrenceSizes
    seed: int = 0

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the operands by name."""
        random = np.random.default_rng([self.seed, self.sizes.steps, self.sizes.batch, self.sizes.hidden])
        shapes = self.sizes.shapes(self.recurrence)
        names = [name for name in self.recurrence.parameters() if name not in ("sequence", *self._results())]
        made = {name: random.standard_normal(shapes[name]).astype("float32") for name in names}
        made["weights"] /= np.float32(np.sqrt(self.sizes.hidden))
        if self.recurrence.lengths:
            made[LENGTHS] = random.integers(0, self.sizes.steps + 1, self.sizes.batch).astype("int32")
        return made

    def kernel(self) -> RecurrentKernel:
        """Return what the template reads of it."""
        return read_recurrent(recurrence_func(self.recurrence, self.sizes, "float32"))

    def _results(self) -> list[str]:
        return [f"last_{state}" for state in self.recurrence.states]

    def run(self, target: str, threads: int, share: float | None = None) -> list[np.ndarray]:
        """Return the results of the template's loops, of the point at `share` of the way through the space or the
        default; of the plain loops where `threads` is 0."""
        arrays = self.arrays()
        known = {"weights"} if self.recurrence.constant else set()
        inputs = {name: array for name, array in arrays.items() if name not in known}
        variables = {name: relax.Var(name, relax.TensorType(a.shape, str(a.dtype))) for name, a in inputs.items()}
        operands = [variables.get(name, relax.const(array)) for name, array in arrays.items()]
        builder = relax.BlockBuilder()
        with builder.function("main", list(variables.values())):
            with builder.dataflow():
                made = call_recurrence(builder, self.recurrence, self.sizes, operands, "float32")
                result = builder.emit_output(relax.Tuple(made))
            builder.emit_func_output(result)
        compiler = context.resolve(target).compiler
        if threads:
            made = self._scheduled(builder.get(), compiler.machine, threads, share)
            executable = build_scheduled(made, compiler, optimised=share is None)
        else:
            executable = build_alone(builder.get())
        return execute(executable, list(inputs.values()))

    def _scheduled(self, mod: tvm.IRModule, machine: Machine, threads: int, share: float | None) -> tvm.IRModule:
        ((symbol, func),) = [item for item in mod.functions.items() if isinstance(item[1], tvm.tirx.PrimFunc)]
        template = replace(TEMPLATE, space=Pinned(share))
        made = schedule_with([template], func, machine, threads)
        assert made.template == "recurrent", made.note
        mod = mod.clone()
        mod[symbol] = made.func
        return repack_weights(mod, {symbol: made.repack} if made.repack else {})

    def expected(self) -> list[np.ndarray]:
        """Return the results by the equations of ONNX, in float64."""
        recurrence, sizes = self.recurrence, self.sizes
        given = {name: array.astype("float64") for name, array in self.arrays().items()}
        lengths = given.get(LENGTHS, np.full(sizes.batch, sizes.steps))[:, None]
        sequence = np.zeros(sizes.shapes(recurrence)["sequence"])
        last = {state: given[state] * (lengths > 0) for state in recurrence.states}
        for d, backward in enumerate(recurrence.backward):
            inputs = np.split(given["projected"], recurrence.directions, -1)[d]
            own = {name: given[name][d] for name in ("weights", "bias", "peepholes") if name in given}
            state = {name: last[name][d] for name in recurrence.states}
            for step in reversed(range(sizes.steps)) if backward else range(sizes.steps):
                new = stepped(recurrence, inputs[step], own, state, [NUMPY[n] for n in recurrence.activations[d]])
                state = {name: np.where(step < lengths, new[name], state[name]) for name in recurrence.states}
                sequence[step, d] = np.where(step < lengths, state["hidden"], 0)
            for name in recurrence.states:
                last[name][d] = state[name]
        return [sequence, *last.values()]


@dataclass(frozen=True)
class Pinned:
    """The space of the template with another default."""

    share: float | None

    def __call__(self, kernel: RecurrentKernel, machine: Machine, threads: int) -> Space[RecurrentPlan]:
        space = recurrent_space(kernel, machine, threads)
        points = list(space)
        assert space.default in points
        assert all(point.cycles > 0 for point in points)
        return space if self.share is None else Space(points[int(self.share * (len(points) - 1))], space.every)


NUMPY = {
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
    "Relu": lambda x: np.maximum(x, 0),
}


def stepped(recurrence: Recurrence, inputs: np.ndarray, own: Arrays, state: Arrays, act: list[Activation]) -> Arrays:
    """Return the states after a step of one direction: the formulas as ONNX writes them."""
    hidden = state["hidden"]
    x = np.split(inputs, recurrence.gates, -1)
    w = np.split(own["weights"], recurrence.gates, 0)
    if recurrence.kind == "RNN":
        return {"hidden": act[0](x[0] + hidden @ w[0].T)}
    if recurrence.kind == "GRU":
        z, r = (act[0](x[gate] + hidden @ w[gate].T) for gate in (0, 1))
        late = r * (hidden @ w[2].T + own["bias"]) if recurrence.reset_after else (r * hidden) @ w[2].T
        return {"hidden": (1 - z) * act[1](x[2] + late) + z * hidden}
    cell = state["cell"]
    p = np.split(own["peepholes"], 3) if recurrence.peepholes else [0.0] * 3
    i, o, f, c = (x[gate] + hidden @ w[gate].T for gate in range(4))
    new = act[0](f + p[2] * cell) * cell + act[0](i + p[0] * cell) * act[1](c)
    return {"hidden": act[0](o + p[1] * new) * act[2](new), "cell": new}


def make(
    kind: str, direction: str, steps: int, batch: int, hidden: int, constant: bool = True, seed: int = 0,
    names: Sequence[str] = (), **options: bool,
) -> Case:  # fmt: skip
    backward = DIRECTIONS[direction]
    count = len(DEFAULTS[kind])
    chosen = tuple(names) or DEFAULTS[kind] * len(backward)
    activations = tuple(tuple(chosen[i * count : (i + 1) * count]) for i in range(len(backward)))
    recurrence = Recurrence(kind, backward, activations, constant=constant, **options)
    return Case(recurrence, RecurrenceSizes(steps, batch, hidden), seed)


FORMS = {
    "rnn": ("RNN", {}), "gru": ("GRU", {}), "gru_after": ("GRU", {"reset_after": True}), "lstm": ("LSTM", {}),
    "lstm_peepholes": ("LSTM", {"peepholes": True}), "lstm_lengths": ("LSTM", {"lengths": True}),
    "gru_lengths": ("GRU", {"lengths": True}),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_random_sizes(form: str) -> None:
    """Each form with each target; of the form alone it depends which sizes are whose."""
    kind, options = FORMS[form]
    random = np.random.default_rng(list(form.encode()))
    for seed, target in zip(range(6), itertools.cycle(TARGETS), strict=False):
        direction = str(random.choice(list(DIRECTIONS)))
        steps, batch, hidden, threads = (int(random.integers(1, most)) for most in (9, 12, 70, 4))
        case = make(kind, direction, steps, batch, hidden, bool(random.integers(2)), seed, **options)
        print(case, target, threads)
        check(Ran(case.run(target, threads), {}), case.expected())


@pytest.mark.parametrize("form", FORMS)
def test_plain_loops_are_right_by_themselves(form: str) -> None:
    kind, options = FORMS[form]
    case = make(kind, "both", 4, 3, 9, **options)
    check(Ran(case.run("llvm", 0), {}), case.expected())


@pytest.mark.parametrize(
    ("kind", "steps", "batch", "hidden"),
    [("LSTM", 300, 1, 33), ("GRU", 300, 2, 20), ("LSTM", 1, 1, 128), ("RNN", 1, 5, 1)],
)
def test_long_and_short_sequences(kind: str, steps: int, batch: int, hidden: int) -> None:
    case = make(kind, "both", steps, batch, hidden)
    check(Ran(case.run("llvm", 2), {}), case.expected())


@pytest.mark.parametrize("kind", DEFAULTS)
def test_directions_with_activations_of_their_own(kind: str) -> None:
    count = len(DEFAULTS[kind])
    names = [*ACTIVATIONS, *reversed(list(ACTIVATIONS)), *ACTIVATIONS][: 2 * count]
    case = make(kind, "both", 3, 2, 18, names=names)
    check(Ran(case.run("llvm", 2), {}), case.expected())


@pytest.mark.parametrize("form", FORMS)
def test_points_of_the_space(form: str) -> None:
    """All pairs of a form, a point and sizes."""
    kind, options = FORMS[form]
    for point in range(MOST):
        batch, hidden = ((1, 150), (7, 40))[(point + list(FORMS).index(form)) % 2]
        case = make(kind, "both", 3, batch, hidden, **options)
        check(Ran(case.run("llvm", 3, point / (MOST - 1)), {}), case.expected())


def test_threads_share_units_where_a_direction_leaves_l2() -> None:
    machine = context.resolve("llvm").compiler.machine
    plans = {}
    for hidden in (64, 1024):
        case = make("LSTM", "forward", 16, 1, hidden)
        plans[hidden] = recurrent_space(case.kernel(), machine, 2).default
    assert plans[64].shares == 1
    assert plans[1024].shares == 2
    both = make("LSTM", "both", 16, 1, 64)
    plan = recurrent_space(both.kernel(), machine, 2).default
    assert plan.shares == 1  # each thread has a direction


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_types_are_left_to_plain_loops(dtype: str) -> None:
    case = make("LSTM", "forward", 3, 2, 8)
    func = recurrence_func(case.recurrence, case.sizes, dtype)
    made = schedule(func, context.resolve("llvm").compiler.machine, 2)
    assert made.template == "fallback_loops"
    assert "not in float32" in made.note


def test_description_survives_the_attribute() -> None:
    case = make("GRU", "both", 3, 2, 8, reset_after=True)
    func = recurrence_func(case.recurrence, case.sizes, "float32")
    assert recurrence_of(func) == case.recurrence
    assert recurrence_of(tvm.tirx.PrimFunc([], tvm.tirx.Evaluate(0))) is None
    assert read_access(func).kind is MappingKind.OPAQUE


def test_report_counts_the_products() -> None:
    case = make("LSTM", "both", 5, 3, 16)
    func = recurrence_func(case.recurrence, case.sizes, "float32")
    made = schedule(func, context.resolve("llvm").compiler.machine, 2)
    info = kernel_info("lstm", Kernel(func, made, made.func))
    products = 2 * 2 * 5 * 3 * 4 * 16 * 16
    assert products < info.flops < 1.5 * products
    assert (info.template, info.note) == ("recurrent", "")
    assert info.cycles > 0
    found: list[s_tir.SBlock] = []
    structural_walk(made.func.body, (SBlock, found.append))
    assert not found


def test_the_steps_of_a_layer_of_a_model_are_this_kernel() -> None:
    model, _ = layer("LSTM", 6, 1, 32, 32, "bidirectional")
    kernels = fusion.compile(model, strict=True).specializations[0].kernels.values()
    assert [kernel.template for kernel in kernels].count(TEMPLATE.name) == 1
