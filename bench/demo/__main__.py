"""Read an image with compiled networks, check the text against ONNX Runtime's, and compare the engines' speed."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnxruntime

from bench import command, markdown, protocol
from bench.demo.compiler import INPUT, Compiler
from bench.demo.image import UnreadableImageError, read_image, sample
from bench.demo.reader import NETWORKS, Network, Reader, TextLine
from bench.peers.engine import Job
from bench.result import RATIO, ComparisonResult, notes
from fusion.system.cpus import default_threads

_ROUNDS = 5


def main() -> int:
    """Return 0 if the lines and the numbers are right, 1 if not, 2 for a wrong command line or an unreadable image."""
    parser = _parser()
    path = parser.parse_args().image
    try:
        image = read_image(path) if path else sample()
    except UnreadableImageError as error:
        parser.exit(2, f"{error}\n")
    return show(image)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.demo", description=__doc__)
    parser.add_argument("image", nargs="?", type=Path, metavar="IMAGE", help="file (default: a page drawn here)")
    return parser


def show(image: np.ndarray) -> int:
    """Read `image`, uint8 of shape (height, width, 3), and print what was found; return 0 if all of it is right."""
    with TemporaryDirectory(prefix="fusion-demo-") as folder:
        compiler = Compiler(Path(folder))
        reader = Reader(compiler.network)
        lines = _read(reader, image)
        expected = Reader(_onnxruntime).read(image)
        same = [line.text for line in lines] == [line.text for line in expected]
        print(_agreement(same, expected), end="\n\n", flush=True)
        results = [_compare(reader, compiler, stage) for stage in NETWORKS if stage in reader.inputs]
    print(_table(results))
    return 0 if same and all(result.passed for result in results) else 1


def _read(reader: Reader, image: np.ndarray) -> list[TextLine]:
    print("Compiling the networks as the page needs them ...", flush=True)
    started = time.perf_counter()
    lines = reader.read(image)
    took = f"in {time.perf_counter() - started:.1f} s with compiling"
    if lines:
        print(f"\nText read by networks that fusion compiled, {took}:\n\n{_listed(lines)}\n", flush=True)
    else:
        ran = ", ".join(stage for stage in NETWORKS if stage in reader.inputs)
        print(f"\nNo text was found, {took}. Networks that ran, compiled by fusion: {ran}.\n", flush=True)
    return lines


def _listed(lines: list[TextLine]) -> str:
    return "\n".join(f"  {line.score:.3f}  {line.text}" for line in lines)


def _onnxruntime(path: Path) -> Network:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def run(data: np.ndarray) -> np.ndarray:
        (output,) = session.run(None, {INPUT: data})
        return np.asarray(output)

    return run


def _agreement(same: bool, expected: list[TextLine]) -> str:
    if not expected:
        return f"ONNX Runtime finds none{' either' if same else ''}."
    if same:
        return f"ONNX Runtime reads the same {len(expected)} lines."
    return f"ONNX Runtime reads other lines:\n{_listed(expected)}"


def _compare(reader: Reader, compiler: Compiler, stage: str) -> ComparisonResult:
    """Time and check one network on the array that the pipeline gave it."""
    data, path = reader.inputs[stage], reader.paths[stage]
    threads = default_threads()
    job = Job(path, {INPUT: data.shape}, threads, compiled=compiler.saved(path, data.shape))
    return protocol.compare(job, protocol.ComparisonPlan(threads, _ROUNDS, checks=1), lambda _: {INPUT: data}, stage)


def _table(results: list[ComparisonResult]) -> str:
    header = ("network", "input", "fusion ms", "ONNX Runtime ms", "OpenVINO ms", "ratio", "compile s", "error", "right")
    rows = [_row(result) for result in results]
    return "\n".join([
        markdown.table(header, rows),
        "",
        f"{default_threads()} threads, float32.",
        f"ratio = {RATIO};",
        "error = largest difference to a float64 evaluation as a share of the output's scale (brackets: ONNX Runtime).",
        *(note for result in results for note in notes(result)),
    ])


def _row(result: ComparisonResult) -> markdown.Row:
    verdict = result.ours.verdict
    return (
        result.model,
        "x".join(map(str, result.shapes[INPUT])),
        *(markdown.number(engine.latency_ms, ".2f") for engine in result.engines.values()),
        markdown.number(result.ratio.median if result.ratio else None, ".2f"),
        markdown.number(result.ours.compile_s, ".1f"),
        f"{verdict.error:.1e} ({verdict.baseline_error:.1e})" if verdict else "",
        ("yes" if verdict.passed else "NO") if verdict else "failed",
    )


if __name__ == "__main__":
    command.run(main)
