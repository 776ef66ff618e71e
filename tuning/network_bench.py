"""A network as a benchmark: builds candidates for its kernels and measures them where they will run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from backends.tensorir.stages import dtype_of, shape_of
from tuning.build import Named, build_library
from tuning.candidates import Candidate, KernelCandidates
from tuning.experiment import Experiment, LibraryCall, Step, StepCondition
from tuning.measuring_session import ExperimentRunner, Results
from tuning.network import Memory, Network
from tuning.toolchain import Toolchain

if TYPE_CHECKING:
    from fusion.module.plan import KernelCall



@dataclass
class NetworkBench:
    """Measures candidates for the kernels of a network.

    Attributes:
        kernels: All of the network.
        folder: For files of this network alone.
        threads: Of a kernel.
    """

    kernels: Mapping[str, KernelCandidates]
    network: Network
    toolchain: Toolchain
    session: ExperimentRunner
    folder: Path
    threads: int
    _memory: Memory = field(init=False)
    _written: int = field(default=-1, init=False)
    _home: dict[str, Path] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._memory = Memory(self.network)
        self.folder.mkdir(exist_ok=True)

    def build_bases(self, over: Callable[[], bool]) -> bool:
        """Build what every kernel is compared with, until it is `over`; returns whether all of it is there."""
        bases = [some.base for some in self.kernels.values()]
        return len(self.build(bases, over)) == len(bases)

    def build(self, candidates: Iterable[Candidate], over: Callable[[], bool]) -> set[str]:
        """Build candidates, those first that come first, until it is `over`; returns the symbols of those that are.
        Where they come from an iterator, the first are built while the others are still being made."""
        symbols = list[str]()

        def missing() -> Iterator[Named]:
            for each in candidates:
                symbols.append(each.symbol)
                if each.symbol not in self._home:
                    yield each.symbol, each.made.func

        path = self.folder / f"library{len(set(self._home.values()))}.so"
        built = build_library(missing(), self.toolchain, path, over)
        self._home.update(dict.fromkeys(built, path))
        return {symbol for symbol in symbols if symbol in self._home}

    def experiment(self, candidates: Mapping[str, Sequence[Candidate]]) -> Experiment:
        """Return what tells what `candidates` take, some of each kernel, all of which are built; it has no time yet."""
        return self._experiment(candidates, {name: place for place, name in enumerate(candidates)}, 0.0)

    def compare(self, candidates: Mapping[str, Sequence[Candidate]], seconds: float) -> Results:
        """Return what the network takes with the first candidates, two of each kernel, and with the second ones, as if
        it were one kernel."""
        return self.session.run(self._experiment(candidates, dict.fromkeys(candidates, 0), seconds))

    def _experiment(
        self, candidates: Mapping[str, Sequence[Candidate]], places: Mapping[str, int], seconds: float
    ) -> Experiment:
        """Return what measures candidates; which kernel of the experiment each is, `places` says."""
        steps = tuple(
            Step(
                places[call.kernel],
                tuple((_call_of(candidate, call, self._memory),) for candidate in candidates[call.kernel]),
                tuple(StepCondition(self._memory.tensor(each.tensor), each.value) for each in call.conditions),
            )
            for call in self.network.plan.calls
        )
        data = self.folder / "data"
        if self._written != self._memory.size:
            self._memory.write(data)
            self._written = self._memory.size
        homes = dict.fromkeys(self._home[each.symbol] for some in candidates.values() for each in some)
        return Experiment(
            libraries=tuple(map(str, homes)),
            data=str(data),
            storages=tuple(self._memory.storages),
            tensors=tuple(self._memory.tensors),
            steps=steps,
            threads=self.threads,
            seconds=seconds,
        )


def _call_of(candidate: Candidate, call: KernelCall, memory: Memory) -> LibraryCall:
    """Return `call` as one of the candidate, which may take its weights in another order."""
    arguments = (
        memory.tensor(argument)
        if argument.shape == shape_of(parameter)
        else memory.placeholder(argument, shape_of(parameter), dtype_of(parameter))
        for argument, parameter in zip(call.arguments, candidate.made.func.params, strict=True)
    )
    return LibraryCall(candidate.symbol, tuple(arguments))
