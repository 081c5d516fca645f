"""Statements that models are made of: products, convolutions, pools, norms, attention."""

from __future__ import annotations

from torch import Tensor

from tests.fuzz.scope import Drawn, Scope, is_complex, is_float, texts

MAX_PRODUCT = 2_000_000
"""The most multiplications of a product."""

PRODUCTS_WITH_ITSELF = texts(
    """
    {0} @ {0}.mT ; {0}.mT @ {0} ; torch.einsum('...ij,...kj->...ik', {0}, {0}) ; {0} @ {0}[0].mT
    {0} @ {0}[..., 0, :].unsqueeze(-1) ; ({0} * 0.5) @ {0}.flip(-1).mT
    {0}.flatten(0, -2).mT @ {0}.flatten(0, -2) ; torch.relu({0} @ {0}.mT) @ {0}
    """
)
PRODUCTS = texts(
    """
    {0} @ {1} ; torch.matmul({0}, {1}) * 0.5 ; {1}.mT @ {0}.mT
    torch.einsum('...i,ij->...j', {0}, {1})
    """
)
LINEAR = texts(
    """
    F.linear({0}, {1}, {2}) ; F.gelu(F.linear({0}, {1}, {2})) ; F.linear({0}, {1}, {2}).relu()
    F.linear({0}, {1}) ; F.linear({0}, {1}).tanh()
    """
)
POOLS = {
    3: texts(
        """
        F.max_pool1d({0}, 2) ; F.avg_pool1d({0}, 3, 1, 1) ; F.adaptive_avg_pool1d({0}, 2)
        F.max_pool1d({0}, 3, 2, 1) ; F.interpolate({0}, scale_factor=2) ; F.lp_pool1d({0}, 2, 2)
        F.interpolate({0}, scale_factor=2, mode='linear') ; F.adaptive_max_pool1d({0}, 3)
        """
    ),
    4: texts(
        """
        F.max_pool2d({0}, 2) ; F.avg_pool2d({0}, 3, 1, 1) ; F.adaptive_avg_pool2d({0}, 1)
        F.max_pool2d({0}, 3, 2, 1) ; F.adaptive_avg_pool2d({0}, (3, 2)) ; F.pixel_shuffle({0}, 2)
        F.interpolate({0}, scale_factor=2) ; F.avg_pool2d({0}, 2, ceil_mode=True)
        F.interpolate({0}, scale_factor=2, mode='bilinear') ; F.unfold({0}, 2)
        F.avg_pool2d({0}, 3, 2, 1, count_include_pad=False)
        F.interpolate({0}, size=(5, 3), mode='bilinear', align_corners=True)
        """
    ),
}
ATTENTION = texts(
    """
    F.scaled_dot_product_attention({0}, {0}, {0})
    F.scaled_dot_product_attention({0}, {0}, {0}.flip(-1), is_causal=True)
    F.scaled_dot_product_attention({0}, {0}[..., :2, :], {0}[..., -2:, :])
    F.scaled_dot_product_attention({0}, {0}, {0}, scale=0.3)
    F.scaled_dot_product_attention({0}, {0}, {0}, attn_mask=({0} @ {0}.mT) > 0)
    F.scaled_dot_product_attention({0}, {0}, {0}, attn_mask=({0} @ {0}.mT))
    (({0} @ {0}.mT) * 0.2).softmax(-1) @ {0}
    (({0} @ {0}.mT) / 3).tril().softmax(-1) @ {0}
    ({0} @ {0}.mT).masked_fill(({0} @ {0}.mT) > 1, -torch.inf).softmax(-1) @ {0}
    """
)


def product(scope: Scope) -> Drawn | None:
    """A value times a weight, or times itself."""
    name = scope.pick(lambda value: (is_float(value) or is_complex(value)) and value.dim() > 0)
    if name is None:
        return None
    value = scope.values[name]
    if value.dim() > 1 and scope.random.random() < 0.35:
        return Drawn(scope.random.choice(PRODUCTS_WITH_ITSELF), (name,))
    width = scope.random.choice((1, 2, 3, 5, 8, 16, 17, 33, 64))
    if value.numel() * width > MAX_PRODUCT:
        return None
    inner = value.shape[-1]
    if scope.random.random() < 0.5:
        weight, bias = (scope.weight(shape, value.dtype) for shape in ((width, inner), (width,)))
        return Drawn(scope.random.choice(LINEAR), (name, weight, bias))
    return Drawn(scope.random.choice(PRODUCTS), (name, scope.weight((inner, width), value.dtype)))


def convolution(scope: Scope) -> Drawn | None:
    """A convolution of one or two dimensions over a value of three or four."""
    name = scope.pick(lambda value: is_float(value) and value.dim() in (3, 4) and value.numel() > 0)
    if name is None:
        return None
    value, random = scope.values[name], scope.random
    dims, channels = value.dim() - 2, value.shape[1]
    groups = random.choice((1, 1, 1, channels))
    filters = groups * random.choice((1, 2, 3, 5, 8) if groups == 1 else (1, 1, 2))
    kernel = tuple(random.choice((1, 2, 3, 3)) for _ in range(dims))
    work = value.numel() * filters // groups
    if filters > 64 or work * kernel[0] * kernel[-1] > MAX_PRODUCT:
        return None
    options = (
        f"stride={random.choice((1, 1, 2, 3))}, padding={random.choice((0, 1, 1, 2))}, "
        f"dilation={random.choice((1, 1, 1, 2))}, groups={groups}"
    )
    if random.random() < 0.2:
        weight = scope.weight((channels, filters // groups, *kernel), value.dtype)
        return Drawn(f"F.conv_transpose{dims}d({{0}}, {{1}}, {options})", (name, weight))
    weight = scope.weight((filters, channels // groups, *kernel), value.dtype)
    bias = scope.weight((filters,), value.dtype)
    convolved = random.choice(("{0}, {1}", "{0}, {1}, {2}"))
    activation = random.choice(("%s", "%s.relu()", "F.silu(%s)"))
    return Drawn(activation % f"F.conv{dims}d({convolved}, {options})", (name, weight, bias))


def pool(scope: Scope) -> Drawn | None:
    """A pool over, or another size of, an image or a sequence."""
    name = scope.pick(lambda value: is_float(value) and value.dim() in POOLS)
    if name is None:
        return None
    return Drawn(scope.random.choice(POOLS[scope.values[name].dim()]), (name,))


def norm(scope: Scope) -> Drawn | None:
    """A norm, with weights or without."""
    name = scope.pick(lambda value: is_float(value) and value.dim() > 0 and value.numel() > 0)
    if name is None:
        return None
    value = scope.values[name]
    last = value.shape[-1]
    by_channel = ("group", "group", "batch", "batch") if value.dim() > 2 else ()
    kind = scope.random.choice(("layer", "layer", "rms", "weighted", "plain", *by_channel))
    size = value.shape[1] if kind in by_channel else last
    weight, bias = scope.weight((size,), value.dtype), scope.weight((size,), value.dtype)
    groups = scope.random.choice([count for count in (1, 2, 3, size) if size % count == 0])
    text = {
        "layer": f"F.layer_norm({{0}}, ({last},), {{1}}, {{2}})",
        "rms": f"F.rms_norm({{0}}, ({last},), {{1}})",
        "weighted": "{0} * ({0}.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * {1}",
        "plain": f"F.layer_norm({{0}}, ({last},))",
        "group": f"F.group_norm({{0}}, {groups}, {{1}}, {{2}})",
        "batch": "F.batch_norm({0}, {1}, {1}.abs() + 0.5, {1}, {2})",
    }[kind]
    return Drawn(text, (name, weight, bias))


def attention(scope: Scope) -> Drawn | None:
    """Attention of a value to itself."""
    name = scope.pick(_can_attend)
    return None if name is None else Drawn(scope.random.choice(ATTENTION), (name,))


def _can_attend(value: Tensor) -> bool:
    if not is_float(value) or not 2 <= value.dim() <= 4:
        return False
    return value.numel() * value.shape[-2] < MAX_PRODUCT


FAMILIES = ((product, 4), (convolution, 2), (pool, 1), (norm, 2), (attention, 2))
