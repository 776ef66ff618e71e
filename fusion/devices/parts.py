"""The machine code of the parts that a model is cut into, for each device, and what runs them one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tvm import relax

from backends.tensorir.result import Kernel
from fusion.context import Context
from fusion.devices.choose_stages import Pipeline
from fusion.devices.costs import Seconds, estimated, estimates_of, seconds_of
from fusion.devices.cut_graph import CutGraph, Part, bytes_of
from fusion.devices.device_thread import DeviceThread
from fusion.devices.host_kernels import host_estimates, with_kernels
from fusion.devices.known_times import HostTimes, known_times, with_known
from fusion.devices.local_program import LocalProgram
from fusion.devices.offload_stage import OffloadStage
from fusion.devices.requests import DeviceStage, Flow, StageProgram
from fusion.devices.rpc_program import RpcProgram
from fusion.devices.rpc_session import RpcSession
from fusion.devices.targets import DeviceTarget, OffloadDevice
from fusion.errors import TargetError
from fusion.frontends.imported import ImportedModel
from fusion.module.build import Built, build
from fusion.module.fallback_program import register_fallbacks
from fusion.module.linker import link
from fusion.module.offload_program import offload
from fusion.module.program import KernelProgram
from fusion.module.settings import settings_of
from fusion.module.specialize_device import device_code
from fusion.shapes import static_shape
from fusion.signature import TensorSpec
from fusion.tensors import as_numpy


@dataclass(eq=False)
class Parts:
    """The machine code of tasks; what several plans run together is made once.

    Attributes:
        ctx: By which the model is lowered.
        host: By which kernels of the CPU are compiled.
        kernels: Those of the model with loops for the CPU, where `ctx` is for another device.
    """

    graph: CutGraph
    imported: ImportedModel
    ctx: Context
    devices: tuple[DeviceTarget, ...]
    sessions: Mapping[int, RpcSession]
    host: Context
    kernels: Mapping[str, Kernel]
    _built: dict[tuple[int, ...], tuple[Part, Built]] = field(default_factory=dict, init=False)
    _local: dict[tuple[int, ...], LocalProgram] = field(default_factory=dict, init=False)
    _remote: dict[tuple[int, tuple[int, ...]], RpcProgram] = field(default_factory=dict, init=False)
    _offloaded: dict[tuple[int, tuple[int, ...]], OffloadStage] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        subgraphs = {**self.imported.subgraphs, **self.graph.lowered.subgraphs}
        if subgraphs and self.sessions:
            raise TargetError(
                "the model cannot run on servers of TVM RPC",
                why=f"{len(subgraphs)} parts of it run on ONNX Runtime, which is in this process",
                hint="name sets of this machine's CPUs",
            )
        self._subgraphs = register_fallbacks(subgraphs, self.ctx.threads)

    def program(self, device: int, tasks: tuple[int, ...]) -> StageProgram:
        """Return what runs `tasks` on a device."""
        if isinstance(self.devices[device], OffloadDevice):
            return self.offloaded(device, tasks)
        return self.remote(device, tasks) if device in self.sessions else self.local(tasks)

    @cached_property
    def estimates(self) -> list[Seconds]:
        """What kernels are expected to take on each device before anything is measured there."""
        return estimated(self.graph, self.devices, self.host_times.seconds)

    @cached_property
    def host_times(self) -> HostTimes:
        """What kernels are expected to take on the CPU, with the most threads that a device has."""
        lowered = self.graph.lowered
        if not self.kernels:
            return with_known(estimates_of(lowered), lowered.seconds)
        own = host_estimates(lowered, self.kernels, self.host.compiler)
        return with_known(own, known_times(lowered.sources, self.host))

    def offloaded(self, device: int, tasks: tuple[int, ...]) -> OffloadStage:
        """Return what runs `tasks` on a device beside the CPU."""
        if (device, tasks) not in self._offloaded:
            target = self.devices[device]
            assert isinstance(target, OffloadDevice)
            part = self.graph.part(tasks)
            specs = _specs(part.reads)
            code = device_code(part.lowered, len(specs), self.ctx)
            program = offload(code, specs, settings_of(self.ctx), target.ordinal)
            self._offloaded[device, tasks] = OffloadStage(code, program)
        return self._offloaded[device, tasks]

    def local(self, tasks: tuple[int, ...]) -> LocalProgram:
        """Return what runs `tasks` in this process."""
        if tasks not in self._local:
            part, built = self.part(tasks)
            assert built.library is not None
            kernels = KernelProgram(
                built.library,
                built.plan,
                part.lowered.weights,
                inputs=_specs(part.reads),
                threads=self.host.threads,
                subgraphs=self._subgraphs,
            )
            self._local[tasks] = LocalProgram(kernels)
        return self._local[tasks]

    def remote(self, device: int, tasks: tuple[int, ...]) -> RpcProgram:
        """Return what runs `tasks` on a server."""
        if (device, tasks) not in self._remote:
            part, built = self.part(tasks)
            library = link(built.executable, self.ctx.target) if built.linked is None else built.linked
            self._remote[device, tasks] = RpcProgram(
                self.sessions[device],
                library,
                built.plan,
                part.lowered.weights,
                inputs=_specs(part.reads),
                outputs=_specs(part.writes),
                expected_s=sum(seconds_of(self.graph.tasks[task], self.estimates[device]) for task in tasks),
            )
        return self._remote[device, tasks]

    def part(self, tasks: tuple[int, ...]) -> tuple[Part, Built]:
        """Return `tasks` as a model of their own, and its code."""
        if tasks not in self._built:
            part = self.graph.part(tasks)
            lowered = with_kernels(part.lowered, self.kernels)
            self._built[tasks] = part, build(lowered, len(part.reads), self.host)
        return self._built[tasks]

    def flow(self, pipeline: Pipeline, threads: Sequence[DeviceThread]) -> Flow:
        """Return what runs the stages of `pipeline`."""
        made = [self.graph.part(stage.tasks) for stage in pipeline.stages]
        stage_of = {var: index for index, part in enumerate(made) for var in part.writes}
        weights = [var for var in dict.fromkeys(self.graph.results) if var in self.graph.weights]
        places = {var: at for at, var in enumerate(dict.fromkeys([*self.graph.inputs, *weights, *stage_of]))}
        after = [sorted({stage_of[var] for var in part.reads if var in stage_of}) for part in made]
        stages = tuple(
            DeviceStage(
                threads[planned.device],
                self.program(planned.device, planned.tasks),
                reads=tuple(places[var] for var in part.reads),
                writes=tuple(places[var] for var in part.writes),
                after=tuple(after[index]),
                before=tuple(other for other, producers in enumerate(after) if index in producers),
                kept=sum(map(bytes_of, {*part.writes, *(var for var in part.reads if var in self.graph.inputs)})),
            )
            for index, (planned, part) in enumerate(zip(pipeline.stages, made, strict=True))
        )
        results = tuple(places[var] for var in self.graph.results)
        return Flow(
            stages,
            constants={places[var]: as_numpy(self.graph.weights[var]) for var in weights},
            inputs=tuple(places[var] for var in self.graph.inputs),
            results=results,
            readers=_readers(stages, results, len(places)),
            seconds=pipeline.seconds,
        )


def _specs(tensors: Sequence[relax.Var]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(str(var.name), static_shape(var), str(var.ty.dtype)) for var in tensors)


def _readers(stages: Sequence[DeviceStage], results: Sequence[int], places: int) -> tuple[int, ...]:
    found = [0] * places
    for stage in stages:
        for place in stage.reads:
            found[place] += 1
    for place in set(results):
        found[place] += 1
    return tuple(found)
