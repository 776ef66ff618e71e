"""Operators that do the same with the order of their operands."""

ELEMENTWISE = frozenset(
    """
    abs acos acosh add asin asinh astype atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor ceil clip cos
    cosh divide equal erf exp floor floor_divide floor_mod greater greater_equal isfinite isinf isnan left_shift less
    less_equal log log_add_exp logical_and logical_not logical_or logical_xor maximum minimum mod multiply negative
    nn.gelu nn.gelu_tanh nn.leakyrelu nn.relu nn.selu nn.silu nn.softplus not_equal power right_shift round rsqrt
    sigmoid sign sin sinh sqrt square subtract tan tanh trunc where
""".split()  # noqa: SIM905 -- a list of words
)
POOLS = frozenset(f"nn.{kind}_pool{rank}d" for kind in ("max", "avg", "adaptive_avg") for rank in (1, 2, 3))
ALONG_AXIS = frozenset(("nn.softmax", "nn.log_softmax", "cumsum", "cumprod"))
NORMS_OF_ROWS = frozenset(("nn.layer_norm", "nn.rms_norm"))
NORMS_OF_CHANNELS = frozenset(("nn.group_norm", "nn.instance_norm"))
REDUCTIONS = frozenset(("mean", "sum", "max", "min", "prod", "variance", "std", "argmax", "argmin"))
RESHAPES = frozenset(("reshape", "squeeze", "expand_dims", "flatten", "nn.batch_flatten"))
