"""Performs the steps of a Dockerfile in folders, without Docker and without a network."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
_PIP = ("pip", "install", "--no-deps", "--target")


@dataclass
class Image:
    """The last stage of a Dockerfile: its files, and a Python that has no packages of its own.

    Attributes:
        files: The folder that stands for its root.
        python: The interpreter.
        variables: What ENV sets.
        entrypoint: Of ENTRYPOINT, the words.
    """

    files: Path
    python: Path
    variables: dict[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run its Python, in its root and with its variables."""
        environment = {"PATH": os.environ["PATH"], "FUSION_CACHE": "0", **self.variables, **variables}
        return subprocess.run(
            [self.python, *arguments], capture_output=True, text=True, check=False, env=environment, cwd=self.files
        )

    def enter(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Do what `docker run` does with `arguments`."""
        program, *words = self.entrypoint
        assert program == "python"
        return self.run(*words, *arguments)


def build_image(dockerfile: Path, folder: Path) -> Image:
    """Perform the steps of `dockerfile` in `folder`; an unknown one is an error."""
    stages: dict[str, Path] = {}
    image: Image | None = None
    for line in dockerfile.read_text().splitlines():
        word, _, rest = line.partition(" ")
        if word == "FROM":
            name = rest.partition(" AS ")[2] or "last"
            stages[name] = folder / name
            stages[name].mkdir()
            image = Image(stages[name], _bare_python(folder))
        elif word and word != "#":
            assert image is not None
            _perform(word, rest, image, stages)
    assert image is not None
    return image


@functools.cache
def _bare_python(folder: Path) -> Path:
    venv.create(folder / "python", symlinks=True)
    return folder / "python" / "bin" / "python"


def _perform(word: str, rest: str, image: Image, stages: dict[str, Path]) -> None:
    if word == "RUN":
        _run([_inside(part, image.files) for part in shlex.split(rest)])
    elif word == "COPY" and (stage := re.fullmatch(r"--from=(\w+) (\S+) (\S+)", rest)):
        origin, target = _inside(stage[2], stages[stage[1]]), _inside(stage[3], image.files)
        shutil.copytree(origin, target, copy_function=os.link)
    elif word == "COPY" and (whole := re.fullmatch(r"\. (\S+)", rest)):
        lines = (ROOT / ".dockerignore").read_text().split()
        ignored = shutil.ignore_patterns(*(line.removeprefix("**/") for line in lines))
        shutil.copytree(ROOT, _inside(whole[1], image.files), ignore=ignored)
    elif word == "ENV":
        name, _, value = rest.partition("=")
        image.variables[name] = _inside(value, image.files)
    elif word == "ENTRYPOINT":
        image.entrypoint = tuple(json.loads(rest))
    else:
        raise ValueError(f"an unknown step: {word} {rest}")


def _inside(word: str, root: Path) -> str:
    return f"{root}{word}" if word.startswith("/") else word


def _run(words: Sequence[str]) -> None:
    if tuple(words[: len(_PIP)]) != _PIP:
        subprocess.run(words, check=True)
        return
    site, option, requirements, *sources = words[len(_PIP) :]
    assert option == "-r"
    Path(site).mkdir()
    for requirement in read_requirements(Path(requirements)):
        _copy_distribution(requirement, Path(site))
    offline = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", "install", *offline, "--target", site, *sources], check=True)


def read_requirements(path: Path) -> list[Requirement]:
    """Return what a file of requirements lists."""
    return [Requirement(line) for line in path.read_text().splitlines() if line and not line.startswith("#")]


def _copy_distribution(requirement: Requirement, site: Path) -> None:
    """Copy what this environment has of a distribution, as pip installs it."""
    found = importlib.metadata.distribution(requirement.name)
    assert requirement.specifier.contains(found.version)
    for file in found.files or ():
        if ".." not in file.parts:
            target = site / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(str(file.locate()), target)
