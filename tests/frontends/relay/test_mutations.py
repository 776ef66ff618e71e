"""A thousand damaged texts: each parses and translates, or ends in an error of ours that names its place, and soon."""

from __future__ import annotations

import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from fusion.errors import FusionError, RelayTextError
from fusion.frontends.relay.model import import_relay, open_relay
from fusion.frontends.relay.source import RelayText
from tests.frontends.relay import shared_models

TEXTS = ("constructs", "let_tuple", "mlp", "dcgan", "squeezenet_64", "resnet18_32", "mobilenet_64")
# The short ones have most of what can go wrong.
WEIGHTS = (50, 20, 10, 10, 3, 3, 4)
ROUNDS, PER_ROUND = 20, 50
LIMIT_S = 20.0
PLACE = re.compile(r"line \d+, column \d+")
TOKEN = re.compile(r"\w+|\s+|.", re.DOTALL)
ODD = (
    *"(){}[],;.=%@\"#?-\\\0é0\n", "/*", "*/", "//", "->", "%0", "%99", "%x", "@main", "fn ", "let ", "if ", "def ",
    "meta[relay.Constant][7]", "1e999f", "9" * 30, "-1", "99999999", "1i8", "1i7", "nanf", "None", "float64", "int3",
    "Tensor", "#[metadata]",
)  # fmt: skip


def mutate(text: str, rng: random.Random) -> str:
    """Return `text` with one to three damages."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        text = rng.choice(DAMAGES)(text, rng)
    return text


def on_tokens(change: Callable[[list[str], int, random.Random], None]) -> Callable[[str, random.Random], str]:
    """Return what makes `change` at a random token."""

    def damage(text: str, rng: random.Random) -> str:
        tokens = TOKEN.findall(text) or [""]
        change(tokens, rng.randrange(len(tokens)), rng)
        return "".join(tokens)

    return damage


def on_characters(change: Callable[[list[str], int, random.Random], None]) -> Callable[[str, random.Random], str]:
    """Return what makes `change` at a random character."""

    def damage(text: str, rng: random.Random) -> str:
        characters = list(text) or [""]
        change(characters, rng.randrange(len(characters)), rng)
        return "".join(characters)

    return damage


def delete(parts: list[str], at: int, rng: random.Random) -> None:
    del parts[at : at + rng.choice((1, 1, 2, 5))]


def insert(parts: list[str], at: int, rng: random.Random) -> None:
    parts.insert(at, rng.choice([rng.choice(ODD), rng.choice(parts)]))


def replace(parts: list[str], at: int, rng: random.Random) -> None:
    parts[at] = rng.choice([rng.choice(ODD), rng.choice(parts)])


def swap(parts: list[str], at: int, rng: random.Random) -> None:
    other = rng.randrange(len(parts))
    parts[at], parts[other] = parts[other], parts[at]


def repeat(parts: list[str], at: int, rng: random.Random) -> None:
    parts[at:at] = parts[at : at + 20] * rng.choice((1, 2, 300))


def cut(text: str, rng: random.Random) -> str:
    return text[: rng.randrange(len(text) + 1)]


CHANGES = (delete, insert, replace, swap, repeat)
DAMAGES = [*map(on_tokens, CHANGES), *map(on_tokens, CHANGES), *map(on_characters, CHANGES), cut]


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError where the body takes longer."""

    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def outcome(text: str) -> FusionError | None:
    """Return the error that `text` ends in, or None."""
    with limit(LIMIT_S):
        try:
            import_relay(open_relay(RelayText(text), None), {})
        except FusionError as error:
            return error
    return None


@pytest.mark.parametrize("name", TEXTS)
def test_texts_are_right_before_they_are_damaged(name: str) -> None:
    assert outcome(shared_models.text(name)) is None


@pytest.mark.parametrize("chunk", range(ROUNDS))
def test_a_damaged_text_parses_or_names_the_place(chunk: int) -> None:
    for seed in range(chunk * PER_ROUND, (chunk + 1) * PER_ROUND):
        rng = random.Random(seed)
        text = mutate(shared_models.text(rng.choices(TEXTS, WEIGHTS)[0]), rng)
        started = time.perf_counter()
        try:
            error = outcome(text)
        except BaseException as defect:
            pytest.fail(f"seed {seed}: {type(defect).__name__}: {str(defect)[:500]}")
        if isinstance(error, RelayTextError):
            assert PLACE.search(error.where), f"seed {seed}: {error}"
        assert time.perf_counter() - started < LIMIT_S, f"seed {seed}"


@pytest.mark.parametrize("damage", ["(" * 100_000, "%0.0" + ".0" * 5_000, "-(" * 20_000, "/*" * 50_000, '"' * 9_999])
def test_deep_and_long_texts_end_soon(damage: str) -> None:
    error = outcome(f"def @main(%x: float32) {{ {damage} }}")
    assert isinstance(error, RelayTextError)
    assert PLACE.search(error.where)
