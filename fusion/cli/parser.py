"""The command's parser: of a word that it does not know it says which one is meant, in a few lines."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import NoReturn

_CHOICE = re.compile(r"invalid choice: '?(?P<word>[^' ]*)'? \(choose from (?P<known>.*)\)", re.DOTALL)


class Parser(argparse.ArgumentParser):
    """Parses the whole command, or the words of a verb."""

    def parse_all(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        """Return what `arguments` say; words that are left over are an error of the verb, which knows its options."""
        options, rest = self.parse_known_args(arguments)
        if rest:
            verb: Parser = options.parser
            verb.error(f"unknown arguments: {' '.join(rest)}")
        return options

    def error(self, message: str) -> NoReturn:
        """End the process with code 2, the usage, and what is wrong."""
        self.exit(2, f"{self.format_usage()}{self.prog}: {message}{self._meant(message)}\n")

    def _meant(self, message: str) -> str:
        choice = _CHOICE.search(message)
        if choice is not None:
            words, known = [choice["word"]], re.findall(r"[\w-]+", choice["known"])
        else:
            words, known = (sorted(set(re.findall(r"--[\w-]+", text))) for text in (message, self.format_help()))
        meant = [match for word in words if word not in known for match in get_close_matches(word, known, 1)]
        return f"\n  hint: did you mean {', '.join(meant)}?" if meant else f"\n  hint: {self.prog} --help lists all"
