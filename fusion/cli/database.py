"""`fusion database`: what was measured of kernels, and taking it from one machine to another of its kind."""

from __future__ import annotations

import argparse
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fusion.cli.exit_codes import OK
from fusion.cli.options import add_database, add_json, add_verb, user_path
from fusion.cli.output import show
from fusion.errors import OptionError
from fusion.system.files import read_file
from tuning.database import Database, default_database
from tuning.record import ReadLines, read_lines

_EXPORT, _IMPORT = "export", "import"


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs, "database", f"[{_EXPORT} FILE | {_IMPORT} FILE] ", "show, export or import measurements of kernels"
    )
    parser.add_argument("action", nargs="?", choices=[_EXPORT, _IMPORT], help="as JSON, a line for each record")
    parser.add_argument("file", nargs="?", type=user_path, metavar="FILE", help="to write, or to read")
    add_database(parser, "database; by default that of the cache folder")
    add_json(parser)
    parser.set_defaults(verb=database)


def database(options: argparse.Namespace) -> int:
    """Print what a database holds, or write its records to a file, or add those of one."""
    if (options.action is None) != (options.file is None):
        raise OptionError("no file is named", hint=f"write: fusion database {options.action or _EXPORT} FILE")
    chosen = default_database() if options.db is None else Database(Path(options.db))
    if chosen is None:
        show("there is no database: the cache is off", {"path": None}, options.json)
        return OK
    with _told(chosen):
        if options.action == _EXPORT:
            return _export(chosen, Path(options.file), options.json)
        if options.action == _IMPORT:
            return _import(chosen, Path(options.file), options.json)
        return _show(chosen, options.json)


def _show(chosen: Database, as_json: bool) -> int:
    found = read_lines(chosen.lines())
    tasks = {record.task.key: record.task for record in found.records}
    families = Counter(task.family for task in tasks.values())
    places = Counter(f"{task.environment.cpu}, {task.environment.threads} threads" for task in tasks.values())
    rows = [
        ("database", str(chosen.path)),
        ("records", f"{len(found.records)}{_damage(found)}"),
        ("kernels", f"{len(tasks)}"),
        *(("", f"{count:6} {family}") for family, count in families.most_common()),
        *(("on", f"{count:6} {place}") for place, count in places.most_common()),
    ]
    data = {
        "path": str(chosen.path), "records": len(found.records), "damaged": found.damaged, "kernels": len(tasks),
        "families": dict(families), "places": dict(places),
    }  # fmt: skip
    show("\n".join(f"{name:9}{text}" for name, text in rows), data, as_json)
    return OK


def _export(chosen: Database, path: Path, as_json: bool) -> int:
    found = read_lines(chosen.lines())
    path.write_text("".join(f"{record.as_line()}\n" for record in found.records))
    text = f"wrote {len(found.records)} records to {path}{_damage(found)}"
    show(text, {"path": str(path), "records": len(found.records), "damaged": found.damaged}, as_json)
    return OK


def _import(chosen: Database, path: Path, as_json: bool) -> int:
    found = read_lines(read_file(path).decode(errors="replace").splitlines())
    before = set(chosen.lines())
    chosen.add(found.records)
    new = len(set(chosen.lines()) - before)
    text = f"{new} records of {path} are new in {chosen.path}, {len(found.records) - new} were there or older"
    data = {"path": str(chosen.path), "records": len(found.records), "new": new, "damaged": found.damaged}
    show(f"{text}{_damage(found)}", data, as_json)
    return OK


def _damage(found: ReadLines) -> str:
    return f" ({found.damaged} damaged lines are left out)" if found.damaged else ""


@contextmanager
def _told(chosen: Database) -> Iterator[None]:
    """Say of what the system or SQLite refuses that it is no defect."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise OptionError(f"the database {chosen.path} or the file cannot be used", why=str(error)) from error
