"""Losses, optimisers, and the operators of classical machine learning."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from tests.fuzz.draw import Draw, Operand, element_type
from tests.fuzz.operators.rows import row

ML = "ai.onnx.ml"
TRAINING = "ai.onnx.preview.training"


@row("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def _loss(d: Draw) -> None:
    batch, classes = d.size(1, 5), d.size(1, 9)
    inner = d.shape(0, 2, 1)
    d.input(0, (batch, classes, *inner))
    d.given(1, d.rng.integers(0, classes, (batch, *inner)))
    d.optional(2, (classes,), "positive")
    d.set("reduction", d.pick(("none", "mean", "sum")))
    if d.chance(0.3):
        d.set("ignore_index", d.pick((0, classes - 1, -1)), always=True)


@row("Adagrad", "Momentum", "Adam", domain=TRAINING)
def _optimise(d: Draw) -> None:
    shape = d.shape(1, 2, 1)
    d.given(0, np.array(0.1))
    d.given(1, np.array(d.number(0, 3)))
    for position in range(2, {"Adagrad": 5, "Momentum": 5, "Adam": 6}[d.schema.name]):
        d.input(position, shape, "positive")
    d.set("norm_coefficient", 0.01, always=True)
    for name in ("alpha", "beta"):
        d.set(name, 0.9, always=True)
    d.set("mode", d.pick(("standard", "nesterov")), always=True)
    d.outputs = {"Adagrad": 2, "Momentum": 2, "Adam": 3}[d.schema.name]


@row("ArrayFeatureExtractor", domain=ML)
def _extract(d: Draw) -> None:
    shape = d.main(1, 3, 1)
    d.given(1, d.rng.integers(0, shape[-1], d.size(1, 5)))


@row("Binarizer", domain=ML)
def _binarize(d: Draw) -> None:
    d.main()
    d.set_floats("threshold")


@row("CastMap", "DictVectorizer", domain=ML)
def _maps(d: Draw) -> None:
    # What takes a map cannot be given arrays: the model is refused, as ONNX Runtime refuses it.
    d.inputs[0] = Operand(d.array("float32", (3,)))
    d.set("string_vocabulary", ["a", "b"], always=d.schema.name == "DictVectorizer")


@row("CategoryMapper", domain=ML)
def _categories(d: Draw) -> None:
    d.main(0, 3)
    d.set("cats_int64s", [1, 2, 3], always=True)
    d.set("cats_strings", ["a", "b", "ab"], always=True)
    d.set("default_int64", -1)
    d.set("default_string", "?")


@row("FeatureVectorizer", domain=ML)
def _features(d: Draw) -> None:
    batch, sizes = d.size(1, 5), [d.size(1, 5) for _ in range(d.number(1, 3))]
    for position, size in enumerate(sizes):
        d.input(position, (batch, size))
    d.set("inputdimensions", sizes, always=True)


@row("Imputer", domain=ML)
def _impute(d: Draw) -> None:
    size = d.size(1, 5)
    d.input(0, (d.size(1, 5), size), "few")
    kind = "int64s" if d.dtype().startswith("int") else "floats"
    number: Any = int if kind == "int64s" else float
    d.set(f"imputed_value_{kind}", [number(5)] * d.pick((1, size)), always=True)
    d.set("replaced_value_int64" if kind == "int64s" else "replaced_value_float", number(1), always=True)


@row("LabelEncoder", domain=ML)
def _labels(d: Draw) -> None:
    if d.schema.since_version == 1:
        d.main(0, 3)
        d.set("classes_strings", ["a", "b", "ab"], always=True)
        return
    source, target = d.pick(
        (("int64", "string"), ("string", "int64"), ("int64", "float32"), ("float32", "int64"), ("string", "float32"))
    )
    d.bind("T1", source)
    d.main(0, 3, among="few")
    values = {"int64": [1, 2, 3], "string": ["a", "b", "ab"], "float32": [0.5, 1.0, -2.0]}
    names = {"int64": "int64s", "string": "strings", "float32": "floats"}
    d.set(f"keys_{names[source]}", values[source], always=True)
    d.set(f"values_{names[target]}", values[target], always=True)


@row("LinearClassifier", domain=ML)
def _linear_classifier(d: Draw) -> None:
    features, classes = d.size(1, 5), d.number(2, 4)
    d.input(0, (d.size(1, 5), features))
    d.set("coefficients", d.rng.standard_normal(classes * features).tolist(), always=True)
    d.set("intercepts", d.rng.standard_normal(classes).tolist(), always=True)
    d.set("classlabels_ints", list(range(classes)), always=True)
    d.set("post_transform", d.pick(("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")))
    d.outputs = 2


@row("LinearRegressor", domain=ML)
def _linear_regressor(d: Draw) -> None:
    features, targets = d.size(1, 5), d.number(1, 3)
    d.input(0, (d.size(1, 5), features))
    d.set("coefficients", d.rng.standard_normal(targets * features).tolist(), always=True)
    d.set("intercepts", d.rng.standard_normal(targets).tolist())
    d.set("targets", targets, always=True)
    d.set("post_transform", d.pick(("NONE", "SOFTMAX", "LOGISTIC")))


@row("Normalizer", domain=ML)
def _normalize(d: Draw) -> None:
    d.main(1, 2, 1)
    d.set("norm", d.pick(("MAX", "L1", "L2")))


@row("OneHotEncoder", domain=ML)
def _one_hot(d: Draw) -> None:
    shape = d.shape(1, 2)
    if d.dtype() == "string":
        d.input(0, shape)
        d.set("cats_strings", ["a", "b", "ab"], always=True)
    else:
        d.given(0, d.rng.integers(0, 4, shape))
        d.set("cats_int64s", [0, 1, 3], always=True)
    d.set("zeros", 1, always=True)


@row("Scaler", domain=ML)
def _scale(d: Draw) -> None:
    size = d.size(1, 5)
    d.input(0, (d.size(1, 5), size))
    d.set("offset", d.rng.standard_normal(d.pick((1, size))).tolist(), always=True)
    d.set("scale", d.rng.standard_normal(len(d.attributes["offset"])).tolist(), always=True)


@row("SVMClassifier", "SVMRegressor", domain=ML)
def _vectors(d: Draw) -> None:
    features, vectors = d.number(1, 4), d.number(2, 4)
    d.input(0, (d.size(1, 5), features))
    d.set("kernel_type", d.pick(("LINEAR", "POLY", "RBF", "SIGMOID")), always=True)
    d.set("kernel_params", [0.5, 0.1, 2.0], always=True)
    d.set("support_vectors", d.rng.standard_normal(vectors * features).tolist(), always=True)
    d.set("coefficients", d.rng.standard_normal(vectors).tolist(), always=True)
    d.set("rho", [0.3], always=True)
    d.set("n_supports", vectors, always=True)
    if d.schema.name == "SVMClassifier":
        d.set("vectors_per_class", [1, vectors - 1], always=True)
        d.set("classlabels_ints", [0, 1], always=True)
        d.outputs = 2


@row("TreeEnsembleClassifier", "TreeEnsembleRegressor", domain=ML)
def _old_trees(d: Draw) -> None:
    d.input(0, (d.size(1, 5), 3))
    nodes = {
        "treeids": [0, 0, 0], "nodeids": [0, 1, 2], "featureids": [d.number(0, 2), 0, 0], "values": [0.2, 0.0, 0.0],
        "modes": [d.pick(("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE")), "LEAF", "LEAF"],
        "truenodeids": [1, 0, 0], "falsenodeids": [2, 0, 0],
    }  # fmt: skip
    for name, values in nodes.items():
        d.set(f"nodes_{name}", values, always=True)
    prefix = "class" if d.schema.name == "TreeEnsembleClassifier" else "target"
    for name, leaves in (("treeids", [0, 0]), ("nodeids", [1, 2]), ("ids", [0, 1]), ("weights", [0.7, 0.4])):
        d.set(f"{prefix}_{name}", leaves, always=True)
    if prefix == "class":
        d.set("classlabels_int64s", [0, 1], always=True)
        d.outputs = 2
    else:
        d.set("n_targets", 2, always=True)
    d.set("post_transform", d.pick(("NONE", "SOFTMAX", "LOGISTIC")))


@row("TreeEnsemble", domain=ML)
def _trees(d: Draw) -> None:
    array = d.input(0, (d.size(1, 5), 2))
    kind = element_type(array.dtype)
    numbers: dict[str, list[float]] = {"nodes_splits": [0.1], "leaf_weights": [1.0, -2.0]}
    for name, values in numbers.items():
        d.attributes[name] = helper.make_tensor(name, kind, [len(values)], values)
    d.attributes["nodes_modes"] = helper.make_tensor("modes", 2, [1], [d.number(0, 3)])
    ints = {
        "n_targets": 1, "post_transform": 0, "aggregate_function": d.number(0, 3), "tree_roots": [0],
        "nodes_featureids": [1], "nodes_truenodeids": [0], "nodes_trueleafs": [1], "nodes_falsenodeids": [1],
        "nodes_falseleafs": [1], "leaf_targetids": [0, 0],
    }  # fmt: skip
    d.attributes.update(ints)


@row("ZipMap", domain=ML)
def _zip_map(d: Draw) -> None:
    d.input(0, (d.size(1, 3), 2))
    d.set("classlabels_int64s", [0, 1], always=True)
