"""Statements that read or write at positions that another value gives."""

from __future__ import annotations

from tests.fuzz.scope import Drawn, Scope, is_complex, is_float


def gather(scope: Scope) -> Drawn | None:
    """Rows, or elements, at the positions that an index says."""
    name = scope.pick(lambda value: value.dim() > 0 and value.shape[0] > 0)
    if name is None:
        return None
    value = scope.values[name]
    count = scope.random.choice((1, 2, 3, 5, 8))
    rows = scope.indices((count,), value.shape[0])
    texts = ["{0}[{1}]", "{0}.index_select(0, {1})", "{0}[{1}] * {0}[:1]", "{0}[{1}.flip(0)]"]
    if value.dim() > 1:
        texts += [
            "{0}[{1}, 0]",
            "{0}.mT[..., {1} * 0]",
            "{0}[{1}][:, 0]",
            "{0}[{1}[:, None], {1} * 0]",
        ]
    if value.dim() == 2 and is_float(value):
        texts += ["F.embedding({1}, {0})", "F.embedding({1}.view(-1, 1), {0})"]
    if value.dim() == 1:
        texts += ["{0}.gather(0, {1})", "{0}.take({1})"]
    return Drawn(scope.random.choice(texts), (name, rows), True)


def gather_along(scope: Scope) -> Drawn | None:
    """``gather`` along an axis, by an index of the value's own rank."""
    name = scope.pick(lambda value: value.dim() > 0 and value.numel() > 0)
    if name is None:
        return None
    value = scope.values[name]
    axis = scope.random.randrange(value.dim())
    shape = list(value.shape)
    shape[axis] = scope.random.choice((1, 2, 5))
    index = scope.indices(shape, value.shape[axis])
    texts = (f"{{0}}.gather({axis}, {{1}})", f"torch.take_along_dim({{0}}, {{1}}, {axis})")
    return Drawn(scope.random.choice(texts), (name, index), True)


def scatter(scope: Scope) -> Drawn | None:
    """A value that is written, or added to, at the positions that an index says."""
    name = scope.pick(
        lambda value: value.dim() > 0 and value.shape[0] > 1 and not is_complex(value)
    )
    if name is None:
        return None
    value = scope.values[name]
    count = scope.random.randrange(1, min(value.shape[0], 9))
    rows = scope.indices((count,), value.shape[0])
    texts = [
        f"{{0}}.index_add(0, {{1}}, {{0}}[:{count}])",
        f"torch.zeros_like({{0}}).index_add(0, {{1}}, {{0}}[-{count}:])",
        "{0}.index_fill(0, {1}, 1)",
        "{0}.index_put(({1},), {0}[0] * 2, accumulate=True)",
        # Where elements share memory, torch's own writes reach all that do.
        f"{{0}}.contiguous().slice_scatter({{0}}[:{count}] * 2, 0, 0, {count})",
        "{0}.contiguous().select_scatter({0}[0] + {0}[1], 0, 1)",
        "{0}.index_put(({1}[:1],), {0}[0] + {0}[1])",
    ]
    if value.dim() == 1:
        texts += [
            f"{{0}}.scatter_add(0, {{1}}, {{0}}[:{count}])",
            "{0}.scatter(0, {1}, 2)",
            f"{{0}}.scatter_reduce(0, {{1}}, {{0}}[:{count}], 'amax')",
            f"{{0}}.scatter_reduce(0, {{1}}, {{0}}[:{count}], 'sum', include_self=False)",
        ]
    if value.dim() == 2:
        texts += [
            f"{{0}}.scatter_add(0, {{1}}.view(-1, 1).expand(-1, {{0}}.shape[1]), {{0}}[:{count}])"
        ]
    return Drawn(scope.random.choice(texts), (name, rows))


def masked(scope: Scope) -> Drawn | None:
    """A choice by a mask that the value itself, or another value, gives."""
    name = scope.pick(is_float)
    if name is None:
        return None
    texts = (
        *("{0}.masked_fill({0} > 0.5, -1.0)", "torch.where({0}.roll(1, 0) > 0, {0}, 0.0)"),
        *("{0}.masked_fill({0}.isnan(), 0.0)", "torch.where({0} < {0}.mean(), {0}, {0} * 2)"),
        *("{0} * ({0} > 0)", "torch.where(torch.isfinite({0}), {0}, 0.5)"),
        "{0}.masked_fill(torch.ones_like({0}, dtype=torch.bool).tril(), float('-inf'))",
        "F.one_hot({0}.nan_to_num(0.0).clamp(0, 3).to(torch.int64), 4)",
        "torch.bucketize({0}, torch.tensor([-1.0, 0.0, 1.0], dtype={0}.dtype))",
    )
    return Drawn(scope.random.choice(texts), (name,))


def created(scope: Scope) -> Drawn | None:
    """A constant, or a value that the sizes of another give."""
    name = scope.pick(lambda value: value.dim() > 0 and not is_complex(value))
    if name is None:
        return None
    texts = (
        "{0} * torch.arange({0}.shape[-1])",
        "{0} + torch.ones({0}.shape[-1], dtype={0}.dtype)",
        "torch.full_like({0}, 2)",
        "{0} + torch.arange({0}.shape[0], dtype={0}.dtype).view(-1, *[1] * ({0}.dim() - 1))",
        "{0} * torch.tensor([1, 2, 3], dtype={0}.dtype)[1]",
        "torch.eye({0}.shape[-1], dtype={0}.dtype) * {0}",
        "torch.linspace(0, 1, {0}.shape[-1], dtype=torch.float32) * {0}",
        "torch.tril(torch.ones({0}.shape[-1], {0}.shape[-1], dtype={0}.dtype)) - {0}",
        "torch.zeros(3, dtype={0}.dtype)[:, None] + {0}.flatten()",
    )
    return Drawn(scope.random.choice(texts), (name,))


FAMILIES = ((gather, 2), (gather_along, 1), (scatter, 2), (masked, 2), (created, 1))
