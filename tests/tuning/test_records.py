"""Records as lines: what is damaged is told, and costs itself only."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from tests.tuning.records import HERE, record, task
from tuning.record import Record, read_lines, sum_of


def is_damaged(line: str) -> bool:
    found = read_lines([line])
    return (len(found.records), found.damaged) == (0, 1)


def test_a_line_is_the_record() -> None:
    made = record(task("a"), wins=True)
    assert "\n" not in made.as_line()
    assert Record.from_line(made.as_line()) == made
    assert Record.from_line(made.as_line()).task.key == made.task.key


def test_tasks_differ_by_what_they_ask_and_where() -> None:
    first = task("a")
    others = [
        replace(first, kind="chain"),
        replace(first, family="matmul"),
        replace(first, structure="b"),
        replace(first, tensors=(("float32", (1, 13, 11, 21)),)),
        replace(first, environment=replace(HERE, target="other")),
        replace(first, environment=replace(HERE, cpu="another CPU")),
        replace(first, environment=replace(HERE, threads=1)),
        replace(first, environment=replace(HERE, versions={"apache-tvm": "1", "backends": "cd"})),
    ]
    assert len({each.key for each in (first, *others)}) == 1 + len(others)
    assert replace(first).key == first.key
    assert first.key.startswith("f2792c0cbe48ae14"), "it is to stay: databases have it"


@pytest.mark.parametrize(
    "line",
    ["{}", "[]", "null", "7", "no", "{", '"text"', "[" * 100_000, '{"sum": NaN}', '{"sum": 1' + "0" * 5000 + "}"],
)
def test_what_is_no_record_is_damaged(line: str) -> None:
    assert is_damaged(line)


def test_any_byte_that_changes_is_found() -> None:
    rng, line = random.Random(3), record(task("a")).as_line()
    for _ in range(200):
        place = rng.randrange(len(line))
        spoiled = line[:place] + rng.choice([chr(ord(line[place]) ^ 1), "", "0"]) + line[place + 1 :]
        assert spoiled == line or is_damaged(spoiled)


def test_a_damaged_line_costs_itself_only() -> None:
    made = [record(task("a"), chunks) for chunks in range(5)]
    lines = [each.as_line() for each in made]
    lines[2] = lines[2][: len(lines[2]) // 2]
    found = read_lines([*lines, "", "\n"])
    assert list(found.records) == [made[0], made[1], made[3], made[4]]
    assert found.damaged == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seconds", -1.0), ("seconds", "1"), ("seconds", None), ("runs", 1.5), ("runs", True), ("wins", 1),
        ("point", {"a": -1}), ("point", [1]), ("task", []), ("measured_at", -5),
    ],
)  # fmt: skip
def test_fields_of_another_form_are_damage(field: str, value: object) -> None:
    """With a sum that matches, as another program may write."""
    data = {**json.loads(record(task("a")).as_line()), field: value}
    del data["sum"]
    with pytest.raises(ValueError, match="not what it should be"):
        Record.from_line(json.dumps({**data, "sum": sum_of(data)}))
