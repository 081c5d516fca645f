"""Functions on values of a graph, named and shaped like NumPy's.

They may be called wherever a graph is being built: inside ``monograph.trace``, on values of a graph
made by hand, and (the elementwise ones) in rewrite patterns. Numbers and arrays become constants,
mixed dtypes are promoted, negative axes count from the end.

A family of ops is loaded when a function of it is first used; ``functional.pyi`` says the same to
type checkers.
"""

from __future__ import annotations

import importlib
from typing import Any

_FAMILIES = {
    "activation": "celu elu gelu log_sigmoid mish selu silu softplus softsign",
    "adaptive_pool": "adaptive_avg_pool adaptive_max_pool global_avg_pool global_max_pool",
    "attention": "attention",
    "batch_norm": "batch_norm batch_norm_training",
    "bessel": (
        "airy_ai bessel_i0 bessel_i0e bessel_i1 bessel_i1e bessel_j0 bessel_j1 bessel_k0 "
        "bessel_k0e bessel_k1 bessel_k1e bessel_y0 bessel_y1 spherical_bessel_j0"
    ),
    "bitcast": "bitcast",
    "blocked_linear": "blocked_linear",
    "collective": "all_gather all_reduce all_to_all axis_index permute reduce_scatter",
    "control": "cond for_loop scan while_loop",
    "conv": "conv conv_transpose",
    "cumulative": "cummax cumprod cumsum",
    "data": "arange dim eye full full_like iota linspace ones ones_like zeros zeros_like",
    "detection": "non_max_suppression roi_align",
    "distance": "correlation covariance pairwise_distance renormalize self_distance",
    "distributions": "bernoulli dropout normal randint uniform",
    "einsum": "einsum",
    "elementwise.arithmetic": (
        "add atan2 copysign divide floor_divide fmod multiply negate power remainder subtract "
        "truncate_divide"
    ),
    "elementwise.bits": "bitwise_and bitwise_not bitwise_or bitwise_xor shift_left shift_right",
    "elementwise.comparison": (
        "equal greater greater_equal is_finite is_inf is_nan less less_equal logical_and "
        "logical_not logical_or logical_xor not_equal"
    ),
    "elementwise.convert": "cast complex conj imag real stop_gradient",
    "elementwise.rounding": "abs ceil floor round sign trunc",
    "elementwise.select": "clip maximum minimum where",
    "embedding_bag": "bag_numbers bag_sums",
    "erf_inv": "erf_inv",
    "factorize": (
        "cholesky householder_product householder_qr lu lu_factor lu_unpack "
        "pivots_to_permutation qr"
    ),
    "fft": (
        "cosine_window fft fft_shift fftn frames hfft hfftn ifft ifftn ihfft ihfftn irfft "
        "irfftn rfft rfftn stft"
    ),
    "gamma": "digamma igamma igammac lgamma multigamma polygamma zeta",
    "grouped": "grouped_matmul grouped_outer",
    "index.dropping": "scatter_within",
    "index.lookup": "embedding nonzero one_hot",
    "index.reading": "gather take take_along_axis",
    "index.subscript": "getitem",
    "index.writing": "put_along_axis scatter",
    "joining": "concat split stack unstack",
    "ldl": "ldl_factor ldl_solve",
    "linalg": "dot_general inner linear matmul outer tensordot",
    "linear_activation": "linear_activation",
    "log_cumulative": "logcumsumexp",
    "loss": "cross_entropy mse",
    "math": (
        "cos erf erfc exp exp2 expm1 log log1p log2 log10 reciprocal rsqrt sigmoid sin sqrt "
        "square tanh"
    ),
    "memory": "alloc copy free to_device",
    "norm": "group_norm instance_norm layer_norm rms_norm",
    "patches": "deform_conv fold unfold",
    "polynomials": "polynomial",
    "pool": "avg_pool max_pool max_pool_with_indices",
    "quant": "dequantize fake_quantize quantize",
    "quantiles": "kth_value median mode quantile",
    "random": "fold_in random_bits random_key split_key",
    "rectifier": "hardsigmoid hardswish hardtanh leaky_relu prelu relu relu6",
    "recurrent": "gru lstm rnn",
    "reduce.arithmetic": "prod sum",
    "reduce.extremum": "argmax argmin max min",
    "reduce.statistics": "logsumexp mean std variance",
    "reduce.truth": "all any count_nonzero",
    "resize": "resize",
    "shape": (
        "broadcast_to expand flatten moveaxis reshape squeeze swapaxes tile transpose unsqueeze"
    ),
    "slicing": "flip pad roll slice",
    "softmax": "log_softmax softmax",
    "solve": (
        "cholesky_solve determinant inverse least_squares lu_solve matrix_exp matrix_power "
        "matrix_rank pseudo_inverse slogdet solve triangular_solve"
    ),
    "sorting": "argsort sort top_k",
    "special_functions": "entropy_term erfcx log_ndtr logit ndtr ndtri sinc xlog1py xlogy",
    "spectral": "eig eig_values eigh eigh_values singular_values svd",
    "statistics": (
        "bincount bucketize histogram histogram_uniform searchsorted unique unique_consecutive"
    ),
    "table_lookup": "translate",
    "triangle": "tril triu",
    "trigonometry": "acos acosh asin asinh atan atanh cosh sinh tan",
    "vision": "affine_grid channel_shuffle grid_sample max_unpool pixel_shuffle pixel_unshuffle",
}
"""The functions of each family of ops."""

_HOMES = {name: family for family, names in _FAMILIES.items() for name in names.split()}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    family = _HOMES.get(name)
    if family is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"monograph.ops.{family}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
