"""`fusion plan`: which of several devices would run which kernel of a model."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from fusion.cli.check_arguments import check_arguments
from fusion.cli.models import open_module
from fusion.cli.options import add_compile_options, add_json, add_model, add_verb, user_path
from fusion.cli.output import show
from fusion.cli.progress import progress
from fusion.errors import OptionError
from fusion.options import read_budget

_OBJECTIVES = ("latency", "throughput")
_SET = re.compile(r"[a-z]+:|llvm(\?|$)")


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs, "plan", "MODEL --devices FILE ", "say which of several devices would run what",
        "Plan a model for the devices of a file, with estimates, and nothing runs there; or compile it for sets of this"
        " machine's CPUs, and say what would run on each: --devices llvm:0-0 --devices llvm:1-1.",
    )  # fmt: skip
    add_model(parser)
    parser.add_argument(
        "--devices", action="append", type=user_path, required=True, metavar="D",
        help="devices.toml: devices and links; or llvm:0-0, a set of CPUs, once for each",
    )
    parser.add_argument(
        "--objective", choices=_OBJECTIVES, metavar="O",
        help="latency or throughput; default: latency, and both for sets of CPUs",
    )  # fmt: skip
    parser.add_argument(
        "--html", type=user_path, metavar="FILE", help="draw when devices compute and links copy, as a web page"
    )
    parser.add_argument(
        "--exact", metavar="T", help="of a file: time for HiGHS to look for the best plan there is: 90s, 10m",
    )  # fmt: skip
    add_compile_options(parser)
    add_json(parser)
    parser.set_defaults(verb=plan)


def plan(options: argparse.Namespace) -> int:
    """Print the plan, and draw it if asked for."""
    check_arguments(options, [Path(options.html)] if options.html is not None else [])
    exact = read_budget(options.exact, "exact") if options.exact is not None else 0.0
    if len(options.devices) > 1 or _SET.match(options.devices[0]):
        return _plan_sets(options)
    # Here, not above: planning takes imports that no other verb needs.
    from fusion.report.device_plan import known_devices, placed_operators, plan_dict, plan_text
    from placement.choose import choose_plan, mix_requests
    from placement.devices_file import read_devices
    from placement.problem import LATENCY, THROUGHPUT, PlacementProblem
    from placement.tasks import tasks_of

    topology = read_devices(Path(options.devices[0]), known_devices(options.precision or "fp32"))
    forms = open_module(options.model, options, to_explain=True).module.specializations
    if not forms:
        raise OptionError("the model has no sizes to plan with", hint="give the shapes of its inputs: --shape")
    problem = PlacementProblem(tasks_of(placed_operators(forms[0]), topology), topology)
    with progress("planning"):
        choice = choose_plan(problem, options.objective or LATENCY, exact_seconds=exact)
        if choice.plan.objective == THROUGHPUT:
            choice = mix_requests(choice)
    text = plan_text(choice)
    if options.html is not None:
        from fusion.report.gantt import write_plan_page

        write_plan_page(choice, Path(options.html), Path(options.model).stem)
        text += f"\nwrote {options.html}"
    show(text, plan_dict(choice), options.json)
    return 0


def _plan_sets(options: argparse.Namespace) -> int:
    """Print the plans of the model compiled for sets of CPUs."""
    files = [device for device in options.devices if not _SET.match(device)]
    if files:
        raise OptionError(
            f"{files[0]!r} is a file of devices" if len(files) < len(options.devices) else "a plan is for one file",
            why="a plan is for the devices of one file, where nothing runs, or for sets of this machine's CPUs",
            hint="name the file alone; or add a [[device]] with this CPU's speed and its links to it",
        )
    if options.target is not None:
        raise OptionError("--target has no use with sets of CPUs", why="they are the target", hint="leave it out")
    if options.exact is not None:
        raise OptionError(
            "--exact has no use with sets of CPUs",
            why="they are planned for when the model is compiled",
            hint="leave it out, or plan for a file of devices",
        )
    options.target = options.devices
    module = open_module(options.model, options).module
    from fusion.device_module import DeviceModule

    assert isinstance(module, DeviceModule)
    plans = {name: each for name, each in module.plans.items() if options.objective in (None, name)}
    text = module.explain(options.objective)
    if options.html is not None:
        module.explain_html(options.html, title=Path(options.model).stem, objective=options.objective)
        text += f"\nwrote {options.html}"
    show(text, plans, options.json)
    return 0
