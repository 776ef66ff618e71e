"""Operators of torch with values that are not their defaults, against torch: one program for each family."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fusion
from fusion.errors import UnsupportedOperatorError
from fusion.frontends import import_model
from fusion.frontends.torch import pool_indices
from fusion.frontends.torch.attention import RULES

torch = pytest.importorskip("torch")
F = torch.nn.functional

Cases = dict[str, Callable[..., Any]]


class Family(torch.nn.Module):  # type: ignore[misc]
    """The results of several functions of the same inputs, by name."""

    def __init__(self, cases: Cases) -> None:
        super().__init__()
        self.cases = cases

    def forward(self, *inputs: Any) -> Any:
        """Return the results."""
        return {name: case(*inputs) for name, case in self.cases.items()}


def _agree(cases: Cases, inputs: tuple[Any, ...], tolerance: float = 2e-5) -> None:
    module = Family(cases)
    found = fusion.compile((module, inputs)).run(
        {f"inputs_{index}": value.numpy() for index, value in enumerate(inputs)}
    )
    with torch.no_grad():
        expected = module(*inputs)
    assert list(found) == list(cases)
    for name, value in expected.items():
        assert (found[name].dtype, found[name].shape) == (value.numpy().dtype, tuple(value.shape)), name
        np.testing.assert_allclose(found[name], value.numpy(), rtol=tolerance, atol=tolerance, err_msg=name)


def _values(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


X, Y = _values(3, 4), _values(3, 4, seed=1)
COUNTS = torch.tensor([[1, -2, 3, 4], [5, 6, -7, 8], [0, 2, -1, 1]])
SPECIAL = torch.tensor([[0.0, -0.0, 1.0, -1.0], [math.nan, math.inf, -math.inf, 0.5], [1e-3, 40.0, -3.7, 2.5]])


def _as_many(x: Any, y: Any) -> Any:
    count = (y > 0).sum().item()
    torch._check(count >= 2)
    torch._check(count <= x.shape[1])
    return x[:, :count].sum(1)


@pytest.mark.parametrize(
    "take", [lambda x, y: x[y > 0], lambda x, y: torch.nonzero(x), _as_many], ids=["mask", "nonzero", "item"]
)
def test_results_whose_size_depends_on_the_data_are_refused(take: Callable[..., Any]) -> None:
    with pytest.raises(UnsupportedOperatorError) as raised:
        fusion.compile((Family({"taken": take}), (X, Y)))
    assert raised.value.why == "how many elements it takes depends on the data"


def test_special_functions() -> None:
    cases: Cases = {
        "exp2": torch.exp2,
        "sinh": torch.sinh,
        "cosh": torch.cosh,
        "isfinite": torch.isfinite,
        "signbit": torch.signbit,
        "copysign": lambda x: torch.copysign(torch.full_like(x, 2.0), x),
        "fmax": lambda x: torch.fmax(x, torch.full_like(x, 0.7)),
        "fmin": lambda x: torch.fmin(x, torch.full_like(x, 0.7)),
        "hypot": lambda x: torch.hypot(x, torch.full_like(x, 3.0)),
        "logaddexp": lambda x: torch.logaddexp(x, torch.full_like(x, 0.7)),
        "logaddexp2": lambda x: torch.logaddexp2(x, torch.full_like(x, 0.7)),
        "isclose": lambda x: torch.isclose(x, torch.ones_like(x)),
        "ldexp": lambda x: torch.ldexp(x, torch.tensor([1, 2, -3, 4])),
        "heaviside": lambda x: torch.heaviside(x, torch.tensor(0.3)),
        "erfinv": torch.erfinv,
        "infinity": lambda x: torch.full((2, 3), -math.inf),
        "nan": lambda x: torch.full((2,), math.nan),
        "cummax": lambda x: torch.cummax(x, 0).values,
        "cummax_index": lambda x: torch.cummax(x, 1).indices,
        "cummin_index": lambda x: torch.cummin(x.round(), 1).indices,
        "searched": lambda x: torch.searchsorted(torch.tensor([-1.0, 0, 0, 1]), x),
        "searched_behind": lambda x: torch.searchsorted(COUNTS.float().sort(1)[0], x, right=True, out_int32=True),
        "buckets": lambda x: torch.bucketize(x, torch.tensor([-1.0, 0, 0, 1]), right=True),
    }
    _agree(cases, (SPECIAL,))


def test_gamma_and_error_functions() -> None:
    special = torch.tensor([20.0, 1e-9, 150.0, 0.0, -0.0, -3.0, math.inf, -math.inf, math.nan]).double()
    x = torch.cat([torch.linspace(-6.3, 6.3, 200, dtype=torch.float64), special])
    _agree({"erfc": torch.erfc, "lgamma": torch.lgamma, "digamma": torch.digamma}, (x,), 1e-11)
    (found,) = fusion.compile((Family({"y": torch.erfc}), (SPECIAL.half(),)))(SPECIAL.half())
    np.testing.assert_allclose(found, torch.erfc(SPECIAL.half()).numpy(), rtol=1e-3)


def test_arithmetic_has_the_dtypes_of_torch() -> None:
    cases: Cases = {
        "add_alpha": lambda x, y, n: torch.add(x, y, alpha=2.5),
        "sub_alpha": lambda x, y, n: torch.sub(x, y, alpha=3),
        "rsub_alpha": lambda x, y, n: torch.rsub(x, y, alpha=2),
        "from_number": lambda x, y, n: 2 - x.double(),
        "quotient": lambda x, y, n: n / 3,
        "floor": lambda x, y, n: n // 2,
        "floor_of_number": lambda x, y, n: 7 // (n.int() * 2 + 1),
        "floor_by_float": lambda x, y, n: n // 2.5,
        "truncated": lambda x, y, n: torch.div(n * 2**40 + 1, n * 2 - 1, rounding_mode="trunc"),
        "truncated_float": lambda x, y, n: torch.div(x, 0.3, rounding_mode="trunc"),
        "sum_with_float": lambda x, y, n: n + 1.5,
        "less_than_float": lambda x, y, n: n < 1.5,
        "sine": lambda x, y, n: torch.sin(n),
        "sigmoid": lambda x, y, n: torch.sigmoid(n.int()),
        "mixed": lambda x, y, n: n.int() * x,
        "both": lambda x, y, n: torch.cat([n, x.double()]),
        "clamp": lambda x, y, n: n.clamp(-1.5, 2.5),
        "clamp_min": lambda x, y, n: n.clamp(min=-1),
        "cumsum": lambda x, y, n: n.int().cumsum(1),
        "power": lambda x, y, n: torch.pow(n, n.abs()),
        "square": lambda x, y, n: (x.bfloat16() ** 2).float(),
        "shifted": lambda x, y, n: torch.bitwise_left_shift(n, 2),
        "shifted_left": lambda x, y, n: (n << 2) + (n << n.abs() % 5),
        "shifted_right": lambda x, y, n: (n >> 1) + (n >> n.abs() % 5),
        "product": lambda x, y, n: n @ n.T,
        "product64": lambda x, y, n: x.double() @ y.double().T,
        "addmm": lambda x, y, n: torch.addmm(x[:, :3], x, y.T, beta=0.5, alpha=2),
        "addmv": lambda x, y, n: torch.addmv(x[:, 0], x, y[0], beta=0.5, alpha=2),
        "select": lambda x, y, n: x.select(1, -1),
        "item": lambda x, y, n: x * y.sum().item(),
    }
    _agree(cases, (X, Y, COUNTS))


def test_reductions() -> None:
    cases: Cases = {
        "amax": lambda x, n: x.amax((0, 1)),
        "amin": lambda x, n: x.amin(1, keepdim=True),
        "min": lambda x, n: x.min(1).values,
        "min_index": lambda x, n: x.min(0).indices,
        "max_of_booleans": lambda x, n: (n > 4).max(1).values,
        "max_index_of_booleans": lambda x, n: (n > 4).max(1).indices,
        "min_of_booleans": lambda x, n: (n > -7).min(),
        "aminmax": lambda x, n: torch.aminmax(x, dim=1).max,
        "prod": lambda x, n: n.prod(1),
        "any": lambda x, n: torch.any(n),
        "var": lambda x, n: torch.var_mean(x, 1, correction=0)[0],
        "logsumexp": lambda x, n: x.logsumexp(1),
        "logcumsumexp": lambda x, n: x.logcumsumexp(1),
        "cumsum_of_one": lambda x, n: x[0, 0].cumsum(0),
        "cumprod_of_one": lambda x, n: n[0, 1].cumprod(-1),
        "kthvalue": lambda x, n: x.kthvalue(2, dim=1).values,
        "median": lambda x, n: n.median(),
        "median_of": lambda x, n: x.median(1, keepdim=True).indices,
        "median_of_nan": lambda x, n: (x / (n - 4).clamp(0, 1) * 0 + n).median(1).values,
        "median_of_one": lambda x, n: x[0, 0].median(0).values,
        "stable": lambda x, n: torch.sort(n, stable=True, dim=1).values,
        "unsorted": lambda x, n: x.topk(2, dim=1, sorted=False).values.sum(1),
        "norm0": lambda x, n: torch.linalg.vector_norm(n.float(), ord=0),
        "dist": lambda x, n: torch.dist(x, n.float(), 3),
        "cdist": lambda x, n: torch.cdist(x, n.float()),
    }
    _agree(cases, (X, COUNTS))


def test_indexing() -> None:
    i, j = torch.tensor([0, -1, 2]), torch.tensor([1, 3, -2])
    rows = torch.tensor([[0, 0], [1, 3], [3, 3]])

    def written(x: Any, y: Any) -> Any:
        x = x.clone()
        x[0], x[:, -1] = 1.0, 2.0
        x[i, j] = torch.tensor([7.0, 8.0, 9.0])
        x[y > 1] = -1.0
        return x

    cases: Cases = {
        "rows": lambda x, y: x[torch.tensor([[0, -1], [1, 2]])],
        "pairs": lambda x, y: x[i, j],
        "pairs_behind": lambda x, y: x.reshape(1, 3, 4)[:, i, j],
        "outer": lambda x, y: x[i[:, None], j],
        "apart": lambda x, y: x.reshape(3, 1, 4)[i, :, j],
        "take": lambda x, y: x.take(torch.tensor([0, 5, -1])),
        "backwards": lambda x, y: x[:, torch.arange(x.shape[1] - 1, -1, -1)],
        "counted down": lambda x, y: torch.arange(2.5, -1, -0.5),
        "triangle": lambda x, y: x[:, :3][tuple(torch.tril_indices(3, 3, -1))],
        "upper triangle": lambda x, y: x[tuple(torch.triu_indices(3, 4, 1))],
        "unfold": lambda x, y: x.unfold(1, 2, 1),
        "strided": lambda x, y: x.as_strided((2, 3), (1, 2), 1),
        "written": written,
        "put": lambda x, y: x.index_put((torch.tensor([[0], [2]]), torch.tensor([1, 3])), torch.tensor(5.0)),
        "added": lambda x, y: x.index_put((torch.tensor([0, 0]), torch.tensor([1, 1])), y[0, :2], accumulate=True),
        "index_add": lambda x, y: x.index_add(1, torch.tensor([0, 2, 2, -0]), y, alpha=2),
        "index_copy": lambda x, y: x.index_copy(0, torch.tensor([2, 0, 1]), y),
        "index_fill": lambda x, y: x.index_fill(1, torch.tensor([0, -1]), 9.0),
        "index_fill_of_one": lambda x, y: x[0, 0].index_fill(0, torch.tensor([0]), 9.0),
        "index_fill_by": lambda x, y: x.index_fill(-2, torch.tensor([1]), y[0, 0]),
        "masked": lambda x, y: x.masked_scatter(y > 0, y),
        "scatter_add": lambda x, y: x.scatter_add(1, rows, y[:, :2]),
        **{
            f"{reduce}_{own}": lambda x, y, reduce=reduce, own=own: x.scatter_reduce(
                1, rows, y[:, :2], reduce, include_self=own
            )
            for reduce in ("sum", "prod", "mean", "amax", "amin")
            for own in (True, False)
        },
    }
    _agree(cases, (X, Y))


IMAGE = _values(2, 3, 9, 11)


def test_resizing() -> None:
    grid = torch.rand(2, 4, 5, 2, generator=torch.Generator().manual_seed(2)) * 2.6 - 1.3

    def many(x: Any) -> Any:
        return torch.cat([x, 2 * x, x + 1], 1)

    cases: Cases = {
        "nearest": lambda x, g: F.interpolate(x, size=(13, 7)),
        "nearest_scale": lambda x, g: F.interpolate(x, scale_factor=(1.7, 2.3)),
        "nearest_twice": lambda x, g: F.interpolate(x, scale_factor=2),
        "bilinear": lambda x, g: F.interpolate(x, scale_factor=(1.7, 2.3), mode="bilinear"),
        "smaller": lambda x, g: F.interpolate(x, size=(5, 6), mode="bilinear", antialias=True),
        "smaller_cubic": lambda x, g: F.interpolate(x, size=(5, 6), mode="bicubic", antialias=True),
        "linear": lambda x, g: F.interpolate(x[0], scale_factor=2, mode="linear"),
        "trilinear": lambda x, g: F.interpolate(x[None], scale_factor=2, mode="trilinear"),
        "sampled": lambda x, g: F.grid_sample(x, g, align_corners=True),
        "sampled_border": lambda x, g: F.grid_sample(x, g, padding_mode="border", align_corners=False),
        "sampled_nearest": lambda x, g: F.grid_sample(x, g, mode="nearest", align_corners=False),
        "sampled_reflected": lambda x, g: F.grid_sample(
            x, g, "bicubic", padding_mode="reflection", align_corners=False
        ),
        "sampled_columns": lambda x, g: F.grid_sample(many(x), g, align_corners=False),
        "sampled_columns_border": lambda x, g: F.grid_sample(many(x), g, padding_mode="border", align_corners=True),
        "sampled_volume": lambda x, g: F.grid_sample(
            x[:, None], torch.cat([g, g[..., :1]], -1)[:, None], align_corners=False
        ),
        "mean": lambda x, g: F.avg_pool2d(x, 2, divisor_override=3),
        "patches": lambda x, g: F.unfold(x, (2, 3), dilation=2, padding=1, stride=2),
    }
    _agree(cases, (IMAGE, grid))


def test_pools_bags_and_transposed_convolutions(capfd: pytest.CaptureFixture[str]) -> None:
    rows = torch.tensor([[0, 2, 1], [1, 1, 0]])
    kernel = _values(2, 2, 2, 3, 1, seed=3)
    flat, first = rows.reshape(-1), torch.tensor([0, 2, 2])
    known = _values(2, 4, 2, 3, 1, seed=4)

    def turned3(x: Any, w: Any, groups: int) -> Any:
        image = x[:1, :2, :8].reshape(1, 2, 2, 4, 11)
        return F.conv_transpose3d(image, w, None, (2, 1, 3), 1, (1, 0, 2), groups, (3, 1, 4))

    cases: Cases = {
        "adaptive1": lambda x, w: F.adaptive_max_pool1d(x[0], 4),
        "adaptive2": lambda x, w: F.adaptive_max_pool2d(x, (4, 5), return_indices=True)[0],
        "adaptive2_index": lambda x, w: F.adaptive_max_pool2d(x.round(), (4, 5), return_indices=True)[1],
        "adaptive3": lambda x, w: F.adaptive_max_pool3d(x, (2, 4, 3)),
        "turned3": lambda x, w: turned3(x, w, 1), "turned3_groups": lambda x, w: turned3(x, w, 2),
        "turned3_known": lambda x, w: turned3(x, known, 1),
        **{f"bag_{mode}": lambda x, w, mode=mode: F.embedding_bag(rows, x[0, 0, :3], mode=mode, padding_idx=1)
           for mode in ("sum", "mean", "max")},
        "bag_first": lambda x, w: F.embedding_bag(flat, x[0, 0], first, mode="sum", per_sample_weights=x[0, 1, 0, :6]),
        "written": lambda x, w: x.slice_scatter(x[:, :, :3], 2, 1, 7, 2),
        "circular": lambda x, w: F.pad(x, (2, 3, 1, 2), mode="circular"),
    }  # fmt: skip
    _agree(cases, (IMAGE, kernel))
    assert capfd.readouterr().err == "", "TVM warns of a read past an end"


def test_places_of_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of equal ones, as of infinities, and the last NaN. Large windows are those of more than nine places, as
    of each place there are some ten operators."""
    monkeypatch.setattr(pool_indices, "_MOST_TAPS", 9)
    x = IMAGE.round()
    x[0, 0, 3:5, 4], x[1, 0, 0, 0] = math.nan, math.nan
    x[0, 1], x[1, 1, :3, :3] = -math.inf, -math.inf
    volume = _values(2, 4, 5, 6, seed=3).round()

    def place(pool: Callable[..., Any], x: Any, *window: Any, **options: Any) -> Any:
        return pool(x, *window, return_indices=True, **options)[1]

    cases: Cases = {
        "overlapping": lambda x, v: place(F.max_pool2d, x, 3, 2, 1),
        "values": lambda x, v: F.max_pool2d(x, 3, 2, 1, return_indices=True)[0],
        "beyond": lambda x, v: place(F.max_pool2d, x, 2, 2, ceil_mode=True),
        "dilated": lambda x, v: place(F.max_pool2d, x[0], 2, (1, 2), (1, 0), dilation=(3, 2)),
        "line": lambda x, v: place(F.max_pool1d, x[0], 2, 1, 1),
        "volume": lambda x, v: place(F.max_pool3d, v, (2, 2, 1), 2, (1, 1, 0)),
        "large": lambda x, v: place(F.max_pool2d, x, (3, 4), (2, 3), (1, 2), ceil_mode=True),
        "large, dilated": lambda x, v: place(F.max_pool2d, x, (4, 3), (1, 2), (2, 0), dilation=(2, 2)),
        "large volume": lambda x, v: place(F.max_pool3d, v, (2, 3, 2), (1, 2, 1), (1, 1, 1)),
        "put back": lambda x, v: F.max_unpool2d(
            *F.max_pool2d(x.nan_to_num(), 2, return_indices=True), 2, output_size=(9, 11)
        ),
    }
    _agree(cases, (x, volume))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_remainders(dtype: str) -> None:
    """They are exact, however large the quotient is, which was rounded down; of bfloat16 none compiled."""
    x = (_values(8, 32) * torch.logspace(-4, 9, 32)).clamp(-6e4, 6e4).to(getattr(torch, dtype))
    x[0, :4] = torch.tensor([math.nan, math.inf, -0.0, 1.4])
    cases: Cases = {
        "fmod": lambda x: torch.fmod(x, x.flip(0)),
        "fmod by a number": lambda x: torch.fmod(x, 0.7),
        "remainder": lambda x: torch.remainder(x, x.flip(0)),
        "remainder by a number": lambda x: x % -0.7,
        "of a number": lambda x: torch.remainder(5.3, x),
        "by infinity": lambda x: torch.remainder(x, math.inf),
    }
    module = Family(cases)
    for got, want in zip(fusion.compile((module, (x,)))(x), module(x).values(), strict=True):
        np.testing.assert_array_equal(got.astype(float), want.double().numpy())


def test_terms_of_a_large_window_are_as_many_as_it_is_long() -> None:
    """One of 13 x 13 was looked through at 169 places, which took 30 s of CPU time to compile."""

    def operators(size: int) -> int:
        pool = Family({"y": lambda x: F.max_pool2d(x, size, 1, size // 2, return_indices=True)[1]})
        mod = import_model((pool, (IMAGE,))).mod
        assert mod is not None
        return len(mod["main"].body.blocks[0].bindings)

    assert operators(10) < 2.2 * operators(5)


def test_places_that_nobody_reads_take_nothing() -> None:
    compiled = fusion.compile((Family({"y": lambda x: F.max_pool2d(x, 3, 2, 1)}), (IMAGE,)))
    assert "1 kernel in 1 call" in compiled.explain()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_networks_in_other_precisions(dtype: str) -> None:
    kind = getattr(torch, dtype)
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(4, 8), torch.nn.LayerNorm(8),
        torch.nn.GELU(), torch.nn.Linear(8, 5), torch.nn.Softmax(-1),
    ).eval().to(kind)  # fmt: skip
    x = IMAGE.to(kind)
    compiled = fusion.compile((module, x))
    assert [spec.dtype for spec in (*compiled.inputs, *compiled.outputs)] == [dtype, dtype]
    (found,) = compiled(x)
    with torch.no_grad():
        expected = module(x).double().numpy()
    tolerance = {"float16": 2e-3, "bfloat16": 2e-2, "float64": 1e-7}[dtype]
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_norms_in_half_precision_are_computed_in_float32(dtype: str) -> None:
    """In 16 bits four operations were rounded, and a variance near the epsilon."""
    kind = getattr(torch, dtype)
    norm = torch.nn.BatchNorm2d(3).eval()
    norm.running_mean.fill_(1.0)
    norm.running_var.copy_(torch.tensor([1e-6, 1.0, 4.0]))
    x = (IMAGE / 4 + 1).to(kind)
    norm = norm.to(kind)
    (found,) = fusion.compile((norm, x), strict=True)(x)
    with torch.no_grad():
        expected = norm.double()(x.double()).numpy()
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=1.01 * unit, atol=1e-4)


def test_autocast_is_followed() -> None:
    class Cast(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return (x @ x.T).float() + 1

    (found,) = fusion.compile((Cast(), X))(X)
    np.testing.assert_allclose(found, Cast()(X).numpy(), rtol=2e-2, atol=2e-2)


def test_an_operator_without_converter_is_named_with_its_place() -> None:
    class Outer(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = Family({"i0": torch.special.i0, "x": torch.relu})

        def forward(self, x: Any) -> Any:
            return self.inner(x)

    with pytest.raises(UnsupportedOperatorError, match=r"aten\.i0\.default") as caught:
        fusion.compile((Outer(), X))
    assert "module 'inner'" in caught.value.where
    assert "test_torch_operators.py" in caught.value.where
    assert "ONNX" in caught.value.hint


@pytest.mark.parametrize(
    "case",
    [
        lambda x: x[x > 0],
        lambda x: torch.linalg.svdvals(x[:, :3]),
        lambda x: torch.unique(x),
        lambda x: F.gumbel_softmax(x),
    ],
)
def test_what_cannot_be_compiled_is_refused(case: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnsupportedOperatorError):
        fusion.compile((Family({"case": case}), (X,)))
    assert capfd.readouterr().err == ""


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_reductions_of_nothing() -> None:
    """Means were 0, variances and norms an internal error."""
    cases: Cases = {
        "mean": lambda x: x[:0].mean(0),
        "mean of all": lambda x: x[:0].mean(),
        "mean that keeps the axis": lambda x: x[:0].mean((0, 1), keepdim=True, dtype=torch.float64),
        "var": lambda x: x[:0].var(0, correction=0),
        "std": lambda x: x[:, :0].std(-1, keepdim=True, correction=0),
        "layer_norm": lambda x: F.layer_norm(x[:, :0], (0,)),
        "adaptive_avg_pool": lambda x: F.adaptive_avg_pool1d(x[:, :0], 1),
        "sum": lambda x: x[:0].sum(0),
        "all": lambda x: (x[:0] > 0).all(0),
        "any": lambda x: (x[:, :0] > 0).any(1, keepdim=True),
        "any of all": lambda x: (x[:0] > 0).any(),
        "embedding": lambda x: F.embedding((x[:, :0] > 0).long(), x).sum(1),
    }
    _agree(cases, (X,))


@pytest.mark.parametrize(
    "case",
    [
        lambda x: F.dropout(x, 0.5),
        lambda x: F.dropout1d(x, 0.5),
        lambda x: F.alpha_dropout(x, 0.5, training=True),
        lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
        torch.randn_like,
        torch.bernoulli,
        lambda x: x.clone().exponential_(),
    ],
)
def test_random_numbers_are_refused(case: Callable[..., Any]) -> None:
    """TVM's importer leaves dropping out, as if it were inference, and makes zeros of draws."""
    with pytest.raises(UnsupportedOperatorError) as caught:
        fusion.compile((Family({"y": case}), (X,)))
    assert caught.value.why == "it draws random numbers, others in every run"
    assert "training=self.training" in caught.value.hint


@pytest.mark.parametrize("heads", [(1, 2), (4, 1), (2, 2)])
def test_queries_share_as_many_keys_and_values_as_there_are(heads: tuple[int, int]) -> None:
    """torch repeats the heads of keys and of values each as often as there are more of queries."""
    query, key, value = _values(1, 4, 3, 2), *(_values(1, many, 5, 2, seed=many) for many in heads)
    (attend,) = RULES.values()
    expected = F.scaled_dot_product_attention(query, key, value, enable_gqa=True)
    torch.testing.assert_close(attend(query, key, value, enable_gqa=True), expected)


def test_what_draws_nothing_is_not_refused() -> None:
    _agree({
        "not training": lambda x: F.dropout(x, 0.5, training=False),
        "never": lambda x: F.dropout(x, 0.0),
        "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    }, (X,))  # fmt: skip


def _rows_by_their_experts(x: Any, weights: Any, ends: Any) -> Any:
    """What transformers' operator computes, and torch's own for bfloat16 alone."""
    made = torch.zeros(len(x), weights.shape[2])
    for begin, end, own in zip([0, *ends[:-1]], ends, weights, strict=True):
        made[begin:end] = x[begin:end] @ own
    return made


def test_layers_of_experts() -> None:
    """Few rows, which bring the weights of each, and many, which all experts multiply."""
    weights = _values(30, 8, 8)

    def many(few: Any, some: Any, ends: Any) -> Any:
        """Rows are in order of experts that follow from their own values."""
        chosen = some[:, 0].mul(3).round().clamp(0, 29)
        counts = torch.histc(chosen, bins=30, min=0, max=29)
        rows = some[torch.argsort(chosen, stable=True)]
        return torch.ops.transformers.grouped_mm_fallback(rows, weights, counts.cumsum(0).to(torch.int32))

    def whole(few: Any, some: Any, ends: Any) -> Any:
        rows, whole = some.round().bfloat16(), weights.round().bfloat16()
        return torch._grouped_mm(rows, whole, offs=ends * 14).float()

    cases: Cases = {
        "few": lambda few, some, ends: torch.ops.transformers.grouped_mm_fallback(few, weights, ends),
        "many": many,
        "whole": whole,
        "histogram": lambda few, some, ends: torch.histc(some, 7, -1.5, 1),
    }
    is_there = hasattr(torch.ops.transformers, "grouped_mm_fallback")  # where another test has imported transformers
    with torch.library._scoped_library("transformers", "FRAGMENT") as library:
        if not is_there:
            library.define("grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor")
            library.impl("grouped_mm_fallback", _rows_by_their_experts, "CPU")
            library.impl("grouped_mm_fallback", lambda x, weights, ends: x @ weights[0], "Meta")
        ends = torch.tensor([0, 0, 3, *[4] * 26, 5], dtype=torch.int32)
        _agree(cases, (_values(6, 8), _values(70, 8), ends))
