"""The page of a model needs nothing else, says what it is given and no more, and takes ten thousand nodes."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from html.parser import HTMLParser
from typing import Any

from fusion.model_graph import ModelGraph
from fusion.placement_times import PlacementTimes
from fusion.report.page import render_page, script_json
from fusion.report.page_data import graph_columns
from fusion.report.placement import placement_in
from tests.report.graphs import BLOCK, layered_graph

HOSTILE = "</script><script>alert(1)</script><!--"


class Reader(HTMLParser):
    """Collects the elements of a page and the text of its data."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.data = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][1].get("id") == "data":
            self.data += data


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    return reader


def page_of(graph: ModelGraph, kernels: Any, title: str = "m") -> str:
    texts = {"label": "x", "outputs": "y", "placement": "", "fallbacks": [], "notes": []}
    form = {**graph_columns(graph, kernels), **texts}
    return render_page(title, "x86_64, 2 threads", [form])


def test_the_page_needs_nothing_else() -> None:
    page = page_of(*layered_graph(50))
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\(", page)
    for tag, attrs in read(page).elements:
        assert tag not in ("link", "iframe", "img", "object", "embed")
        assert not {"src", "href", "action"} & attrs.keys()


def test_the_data_are_those_of_the_graph() -> None:
    graph, kernels = layered_graph(50)
    (form,) = json.loads(read(page_of(graph, kernels)).data)
    texts = form["texts"]
    assert form["before"]["name"] == [operator.name for operator in graph.operators]
    assert [texts[op] for op in form["after"]["op"]] == [call.op for call in graph.calls]
    assert form["after"]["sources"] == [[read.source for read in call.reads] for call in graph.calls]
    assert form["kernels"]["group_1_3"]["written"] == 2048
    assert form["kernels"]["group_1_3"]["loops"].startswith("parallel task in 2\n  for k")
    source, target, producer, consumer, reason, size = form["kept"][0]
    assert (source, target, texts[producer], texts[consumer], size) == (1, 2, "relu", "matmul", 2048)
    assert texts[reason] == "matmul is a complex operator"


def test_names_are_text_and_never_markup() -> None:
    graph, kernels = layered_graph(BLOCK)
    first, *others = graph.operators
    graph = dataclasses.replace(graph, operators=(dataclasses.replace(first, name=HOSTILE), *others))
    page = page_of(graph, kernels, title=HOSTILE)
    reader = read(page)
    assert "alert(1)</script>" not in page
    assert json.loads(reader.data)[0]["before"]["name"][0] == HOSTILE
    assert sum(tag == "script" for tag, _ in reader.elements) == 1 + 5
    assert json.loads(script_json({HOSTILE: "&amp; \u2028"})) == {HOSTILE: "&amp; \u2028"}


def test_a_kernel_that_a_library_of_the_device_runs_is_told_as_the_placement_tells_it() -> None:
    graph, kernels = layered_graph(2 * BLOCK)
    first, *_ = kernels
    kernels = {**kernels, first: dataclasses.replace(kernels[first], template="cublaslt")}
    columns = graph_columns(graph, kernels, generator="cuda")
    told = [columns["texts"][backend] for backend in columns["after"]["backend"]]
    parts = placement_in(graph, PlacementTimes(), kernels, "cuda").parts
    assert [part.backend for part in parts] == told[len(told) - len(parts) :]
    assert {name: told.count(name) for name in told} == {"cublaslt": 1, "cuda": len(told) - 1}
    assert columns["generator"] == "cuda"  # its kernels have the first colour


def test_equal_layers_are_stacked() -> None:
    graph, kernels = layered_graph(20 * BLOCK, distinct=False)
    columns = graph_columns(graph, kernels)
    assert columns["before"]["stacks"] == [[1, BLOCK, 20]]
    assert columns["after"]["stacks"] == [[1, 2, 20]]


def test_ten_thousand_operators() -> None:
    for distinct in (True, False):
        graph, kernels = layered_graph(10_000, distinct=distinct)
        started = time.process_time()
        page = page_of(graph, kernels)
        assert time.process_time() - started < 3
        assert len(page.encode()) < 8e6
        assert len(json.loads(read(page).data)[0]["before"]["name"]) == 10_001
