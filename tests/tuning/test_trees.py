"""Trees are those of XGBoost, and a file that is no such model is an error, whatever it holds."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import xgboost

from tuning.trees import Matrix, Trees

_COLUMNS = 5


def _rows(seed: int, count: int = 200) -> Matrix:
    draw = np.random.default_rng(seed)
    rows = np.round(draw.standard_normal((count, _COLUMNS)), 1).astype(np.float32)
    rows[draw.random(rows.shape) < 0.2] = np.nan
    return rows


@pytest.fixture(scope="module")
def booster() -> xgboost.Booster:
    rows = _rows(0)
    labels = np.nan_to_num(rows[:, 0]) ** 2 + np.isnan(rows[:, 1])
    data = xgboost.DMatrix(rows, label=labels)
    return xgboost.train({"max_depth": 4, "base_score": 0.0, "nthread": 1}, data, 20)


def _text(booster: xgboost.Booster) -> str:
    return str(booster.save_raw("json").decode())


def test_they_are_those_of_xgboost(booster: xgboost.Booster) -> None:
    trees, rows = Trees.from_json(_text(booster), _COLUMNS), _rows(1)
    assert np.allclose(trees.predict(rows), booster.predict(xgboost.DMatrix(rows)), atol=1e-5)
    assert trees.predict(rows[:1]) == pytest.approx(trees.predict(rows)[:1])


@pytest.mark.parametrize("columns", [0, 1])
def test_a_model_of_other_features_is_an_error(booster: xgboost.Booster, columns: int) -> None:
    with pytest.raises(ValueError, match="not there"):
        Trees.from_json(_text(booster), columns)


def test_a_way_in_a_circle_is_an_error(booster: xgboost.Booster) -> None:
    model = json.loads(_text(booster))
    tree = model["learner"]["gradient_booster"]["model"]["trees"][3]
    tree["right_children"][tree["right_children"][0]] = 0
    with pytest.raises(ValueError, match="none"):
        Trees.from_json(json.dumps(model), _COLUMNS)


def test_damaged_text_is_an_error_or_a_model(booster: xgboost.Booster) -> None:
    text, draw, rows = _text(booster), random.Random(0), _rows(2, 3)
    for _ in range(200):
        start = draw.randrange(len(text))
        damaged = text[:start] + draw.choice(["", "-1", "9e99", "null", "[", text[draw.randrange(start + 1) :][:9]])
        damaged += text[start + draw.randrange(9) :]
        try:
            trees = Trees.from_json(damaged, _COLUMNS)
        except ValueError:
            continue
        assert np.isfinite(trees.predict(rows)).all()
    for other in ("", "[]", "{}", "3", '{"learner": []}', "[" * 100_000):
        with pytest.raises(ValueError, match=r".+"):
            Trees.from_json(other, _COLUMNS)
