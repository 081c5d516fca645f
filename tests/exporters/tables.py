"""What is known of ONNX Runtime and of ONNX, one line each."""

from __future__ import annotations

NO_ONNX = "ONNX has no such op, and it is not made of others"
MESH = "a model runs on one device"
MEMORY = "a model does not say where tensors live"
NUMERIC = "linear algebra or a special function that nobody has spelled out in ONNX's ops"
RUNTIME = "only compiled programs have it, in the place of an op that ONNX has"

UNSUPPORTED: dict[str, str] = {
    **dict.fromkeys(("all_gather", "all_reduce", "all_to_all"), MESH),
    **dict.fromkeys(("axis_index", "permute", "reduce_scatter"), MESH),
    **dict.fromkeys(("alloc", "free", "to_device"), MEMORY),
    **dict.fromkeys(("cholesky", "householder_qr", "lu_factor", "qr"), NUMERIC),
    **dict.fromkeys(("pivots_to_permutation", "inverse", "slogdet", "solve"), NUMERIC),
    **dict.fromkeys(("matrix_exp", "triangular_solve", "singular_values", "svd"), NUMERIC),
    **dict.fromkeys(("eig", "eig_values", "eigh", "eigh_values"), NUMERIC),
    **dict.fromkeys(("airy_ai", "spherical_bessel_j0", "bessel_j0", "bessel_j1"), NUMERIC),
    **dict.fromkeys(("bessel_i0", "bessel_i0e", "bessel_i1", "bessel_i1e"), NUMERIC),
    **dict.fromkeys(("bessel_k0", "bessel_k0e", "bessel_k1", "bessel_k1e"), NUMERIC),
    **dict.fromkeys(("bessel_y0", "bessel_y1", "digamma", "erfcx", "lgamma"), NUMERIC),
    **dict.fromkeys(("igamma", "igammac", "log_ndtr", "ndtri", "polygamma"), NUMERIC),
    **dict.fromkeys(("polynomial", "zeta"), NUMERIC),
    **dict.fromkeys(("found_rows", "kept_boxes", "numbered_runs"), RUNTIME),
}
"""Ops of which every sample is refused, and why."""

UNSUPPORTED_SAMPLES: dict[str, str] = {
    "determinant-5-c64": "ONNX has no complex numbers, and its Det is not made of real ones",
}
"""Single samples that are refused, of ops that are otherwise exported."""

NO_FLOAT4 = "Could not find an implementation for Cast"
NO_ROI_ALIGN = "Could not find an implementation for RoiAlign"
NO_DOUBLE_DET = "Could not find an implementation for Det"
NO_IMAGES = "Could not find an implementation for ImageDecoder"
NO_LOCALE = "Failed to construct locale"

NOT_IN_ONNX_RUNTIME: dict[str, str] = {
    "cast-5-f32-to-f4e2m1fn": NO_FLOAT4,
    "dequantize-14-f4e2m1fn": NO_FLOAT4,
    "quantize-14-f4e2m1fn": NO_FLOAT4,
    "roi_align": NO_ROI_ALIGN,
    "determinant-6-f64": NO_DOUBLE_DET,
    "determinant-9-empty": NO_DOUBLE_DET,
    "decode_image": NO_IMAGES,
    "string_normalize": NO_LOCALE,  # of a machine that has en_US.UTF-8, it says nothing
}
"""Ops, or single samples, that ONNX Runtime 1.31 refuses, with what it says. ONNX's own reference
evaluator computes these."""

IN_ONNX_RUNTIME_AFTER_ALL: dict[str, str] = {
    **dict.fromkeys(("decode_image-3-damaged", "roi_align-8-no-regions"), "nothing to compute"),
}
"""Samples of those ops that it runs all the same."""

ZEROS_WITHOUT_SIGN: dict[str, str] = {
    **dict.fromkeys(("clip", "cummax", "maximum", "minimum", "relu", "relu6"), "Max and Min"),
    **dict.fromkeys(("celu", "elu", "selu"), "ONNX Runtime's kernels"),
    **dict.fromkeys(("expm1", "log1p", "floor_divide", "remainder", "cross_entropy"), "Where"),
    **dict.fromkeys(("rfft", "determinant"), "sums that come out as 0"),
}
"""Ops whose zeros may have the other sign in ONNX Runtime, and what loses it there."""


def entry(table: dict[str, str], name: str) -> str | None:
    """The entry of a sample, or else of its op."""
    return table.get(name, table.get(name.split("-")[0]))
