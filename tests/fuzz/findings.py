"""What a run found: one finding for each way of going wrong, with the smallest case seen of it, in files."""

from __future__ import annotations

import base64
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx.printer

from tests.fuzz.case import Case, Outcome
from tests.fuzz.known import Known, permitted
from tests.fuzz.verdicts import FINDINGS


@dataclass
class Findings:
    """The outcomes of a run."""

    verdicts: Counter[str] = field(default_factory=Counter)
    seen: dict[str, list[Outcome]] = field(default_factory=dict)
    excused: Counter[Known] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> bool:
        """Enter an outcome; return whether it is a finding of a new signature."""
        self.verdicts[outcome.verdict] += 1
        if outcome.verdict not in FINDINGS:
            return False
        reason = permitted(outcome)
        if reason is not None:
            self.excused[reason] += 1
            return False
        same = self.seen.setdefault(signature(outcome), [])
        same.append(outcome)
        return len(same) == 1

    def summary(self) -> str:
        """Return the counts, and a line a finding with how to see it again."""
        lines = [f"{count:6} {verdict}" for verdict, count in self.verdicts.most_common()]
        lines += [f"{count:6} permitted: {reason.row}" for reason, count in self.excused.most_common()]
        lines.append(f"{len(self.seen)} findings")
        for same in sorted(self.seen.values(), key=lambda same: (same[0].verdict, same[0].where)):
            lines.append(line(same[0]) + (f"  [{len(same)} times]" if len(same) > 1 else ""))
        return "\n".join(lines)


def line(outcome: Outcome) -> str:
    """Return one line about a finding: verdict, operators, what was done, message, and the command that repeats it."""
    note = f" [{outcome.note}]" if outcome.note else ""
    detail = " ".join(outcome.detail.split())[:260]
    command = f"python -m tests.fuzz {outcome.kind} --seed {outcome.seed} --count 1"
    return f"{outcome.verdict} | {outcome.where}{note} | {detail} | {command}"


def signature(outcome: Outcome) -> str:
    """Return what findings of one cause have in common: verdict, and operators or the message without its numbers."""
    operators = re.sub(r" opset .*", "", outcome.where)
    message = re.sub(r"'[^']*'|\"[^\"]*\"|-?\d[\d.e+-]*|\[.*?\]", "#", outcome.detail)[:80]
    note = re.split(r"[= \d]", outcome.note)[0] if outcome.kind == "graphs" else ""
    if outcome.verdict == "refused":  # what a refusal is about, its message says
        return f"refused|{message}"
    if outcome.verdict in ("accepted", "differs"):
        return "|".join((outcome.verdict, operators, note, re.split(r"[:\d(]", outcome.detail)[0][:30]))
    return "|".join((outcome.verdict, operators, message))


def write(outcome: Outcome, folder: Path) -> None:
    """Write a finding's case: its file, what lies beside it, and of a model a test."""
    case = outcome.case
    assert case is not None
    subject = re.sub(r" opset.*", "", outcome.where)
    stem = re.sub(r"\W+", "_", f"{outcome.verdict}_{subject}")[:60] + f"_{outcome.kind}_{outcome.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{stem}.{case.form}").write_bytes(case.model)
    (folder / f"{stem}.txt").write_text(f"{line(outcome)}\n\n{outcome.detail}\n\n{_printed(case)}\n")
    for name, data in case.files.items():
        (folder / name).write_bytes(data)
    if case.form == "onnx":
        arrays = {name: value for name, value in case.inputs.items() if isinstance(value, np.ndarray)}
        (folder / f"test_{stem}.py").write_text(_script(outcome, case, arrays))


def _printed(case: Case) -> str:
    try:
        return onnx.printer.to_text(case.proto()) + "\n" + "\n".join(f"{n} = {v!r}" for n, v in case.inputs.items())
    except Exception as error:  # a damaged model may not print
        return f"{type(error).__name__}: {error}"


def _script(outcome: Outcome, case: Case, arrays: dict[str, np.ndarray]) -> str:
    """Return a test of the case, which fails until it is mended; it can be moved to tests/regressions."""
    values = "".join(
        f"    {name!r}: np.array({_literal(value)}).astype(np_dtype({value.dtype.name!r})).reshape({value.shape}),\n"
        for name, value in arrays.items()
    )
    return (
        f"{line(outcome)!r}\n\nfrom base64 import b64decode\n\nimport numpy as np\nimport onnx\n"
        "from numpy import inf, nan\n\n"
        "from tests.fuzz.case import Case\nfrom tests.fuzz.draw import np_dtype\n"
        "from tests.fuzz.verdicts import FINE, judge\n\n"
        f"MODEL = {_model(case)}\nINPUTS = {{\n{values}}}\n\n\n"
        "def test_it_is_right() -> None:\n"
        f'    outcome = judge(Case("graphs", 0, MODEL, INPUTS, {case.note!r}), lambda stage: None)\n'
        "    assert outcome.verdict in FINE, outcome.detail\n"
    )


def _model(case: Case) -> str:
    """Return Python for the bytes of a model: ONNX's text of it where that says everything, else the bytes."""
    try:
        text = onnx.printer.to_text(case.proto())
        again = onnx.parser.parse_model(text)
    except (onnx.parser.ParseError, UnicodeDecodeError):  # of names that are no text
        text, again = "", onnx.ModelProto()
    if again.graph == case.proto().graph and '"""' not in text and "\\" not in text:
        return f'onnx.parser.parse_model("""\n{text}\n""").SerializeToString()'
    return f"b64decode({base64.b64encode(case.model).decode()!r})"


def _literal(value: np.ndarray) -> str:
    return repr((value if value.dtype.kind in "OUSbiufc" else value.astype(np.float64)).ravel().tolist())
