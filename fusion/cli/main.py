"""Reads the command line and runs a verb; every expected failure is one message without a traceback."""

from __future__ import annotations

import argparse
import errno
import sys
import traceback
from collections.abc import Sequence

import fusion
from fusion.cli import bench, cache, compare, compile_model, convert_model, database, doctor, explain, plan, run, tune
from fusion.cli.exit_codes import INTERNAL, INTERRUPTED, exit_code
from fusion.cli.parser import Parser
from fusion.cli.wording import command_text
from fusion.errors import FusionError, InternalError, OptionError

_VERBS = (compile_model, run, bench, compare, explain, plan, convert_model, tune, cache, database, doctor)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; wrong usage ends the process with code 2, as argparse does."""
    options = build_parser().parse_all(arguments)
    try:
        code = int(options.verb(options))
        sys.stdout.flush()
        return code
    except FusionError as error:
        if isinstance(error, InternalError):
            traceback.print_exc()
        return _refuse(error)
    except BrokenPipeError:
        # The reader of a pipe (head, less) has seen enough.
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:
            sys.stdout = None  # what it still holds would be written, and refused, at the end of the process
            return _refuse(OptionError("what is printed has no room", why=str(error), hint="send it elsewhere"))
        traceback.print_exc()
        print(f"[F901] {type(error).__name__} in fusion itself\n  hint: report the lines above", file=sys.stderr)
        return INTERNAL


def _refuse(error: FusionError) -> int:
    print(command_text(error), file=sys.stderr)
    return exit_code(error)


def build_parser() -> Parser:
    """Return the parser of the whole command."""
    parser = Parser(
        prog="fusion",
        description="Compile a trained model into the fastest program for this machine.",
        formatter_class=lambda prog: argparse.HelpFormatter(prog, width=100),
        epilog="Exit codes: 0 ok, 1 results differ, 2 usage, 3 model not supported, 4 internal.",
    )
    parser.add_argument("--version", action="version", version=f"fusion {fusion.__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for verb in _VERBS:
        verb.add_parser(verbs)
    return parser
