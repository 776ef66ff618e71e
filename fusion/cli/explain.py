"""`fusion explain`: what a compiled model consists of, and with --profile how fast each part is."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fusion.cli.check_arguments import check_arguments
from fusion.cli.models import open_module
from fusion.cli.options import (
    add_backends,
    add_compile_options,
    add_inputs,
    add_json,
    add_model,
    add_verb,
    known_shapes,
    parse_shapes,
    read_inputs,
    user_path,
)
from fusion.cli.output import show
from fusion.cli.progress import progress


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs, "explain", "MODEL ", "say what was fused, what runs where, and how fast",
        "Say what a compiled model consists of: kernels, fallbacks and why, and with --profile their times.",
    )  # fmt: skip
    add_model(parser)
    parser.add_argument("--profile", action="store_true", help="time each kernel (about 5 s)")
    parser.add_argument("--html", type=user_path, metavar="FILE", help="write the graph as a page for a browser")
    add_inputs(parser)
    add_compile_options(parser)
    add_backends(parser)
    add_json(parser)
    parser.set_defaults(verb=explain)


def explain(options: argparse.Namespace) -> int:
    """Print the report, and the profile if asked for."""
    check_arguments(options, [Path(options.html)] if options.html is not None else [])
    given, shapes = read_inputs(options.input), known_shapes(parse_shapes(options.shape))
    # Here, not above: these import what runs modules.
    from fusion.cli.feed import complete_inputs, random_values
    from fusion.report.explain import as_dict

    module = open_module(options.model, options, to_explain=not options.profile).module
    if options.profile or (module.dynamic and shapes):
        # A module with open dimensions has nothing to explain before its first run.
        with random_values(module, given):
            module.run(complete_inputs(module, given, shapes, options.seed))
    profile = None
    if options.profile:
        with progress("profiling"):
            profile = module.profile(complete_inputs(module, given, shapes, options.seed))
    if options.html is not None:
        module.explain_html(options.html, title=Path(options.model).stem, profile=profile)
    text, data = module.explain(), as_dict(module)
    if profile is not None:
        text, data = f"{text}\n\n{profile}", data | {"profile": profile.as_dict()}
    show(text, data, options.json)
    return 0
