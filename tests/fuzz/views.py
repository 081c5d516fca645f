"""Statements that move no numbers about, or only move them: views, slices, flips, joins, pads.

``meetings`` are the interesting ones: a value meets another view of itself, so that a kernel reads
one memory in two ways.
"""

from __future__ import annotations

from torch import Tensor

from tests.fuzz.scope import Drawn, Scope, is_complex, is_float, texts

MEETINGS = texts(
    """
    {0}[None] - {0}[0] ; {0}.unsqueeze(1) + {0}[0] ; {0}.flip(0) + {0} ; {0} - {0}.roll(1, 0)
    {0}[1:] - {0}[:-1] ; {0}[..., 1:] * {0}[..., :-1] ; {0} + {0}[..., :1] ; {0} - {0}[-1]
    {0}.unsqueeze(-1) * {0}.unsqueeze(-2) ; {0}[::2] + {0}[: ({0}.shape[0] + 1) // 2]
    {0} + {0}.flip(-1) ; {0}.transpose(0, -1) + {0} ; {0} * {0}.mT ; {0}.flip(0, -1) * {0}
    torch.maximum({0}, {0}.roll(2, -1)) ; torch.where({0} > {0}[:1], {0}, {0}[0])
    {0} - {0}.mean(-1, keepdim=True) ; {0} / (1 + {0}.abs().amax(0, keepdim=True))
    {0} - {0}.sum(0) ; {0} * {0}[..., -1:] ; {0}.unsqueeze(0) - {0}.unsqueeze(1)
    {0} + {0}.cumsum(0) ; {0}.reshape(-1).flip(0).reshape({0}.shape) + {0}
    {0} + {0}.transpose(0, -1).reshape({0}.shape) ; {0}[..., ::2] - {0}[..., ::2].flip(-1)
    {0}.expand(3, *{0}.shape) + {0}[0] ; {0}[:, None] + {0}[:, :1].unsqueeze(1)
    """
)
PLAIN = texts(
    """
    {0}.transpose(0, -1) ; {0}.mT ; {0}.unsqueeze(0) ; {0}.unsqueeze(-1) ; {0}.squeeze()
    {0}.flatten() ; {0}.flatten(0, 1) ; {0}.flatten(-2) ; {0}.flip(0) ; {0}.flip(-1)
    {0}.roll(1, -1) ; {0}.roll(-2, 0) ; {0}.contiguous() ; {0}.mT.contiguous() ; {0}[0] ; {0}[-1]
    {0}[..., 0] ; {0}[:, -1] ; {0}[None] ; {0}[..., None] ; {0}.diagonal(0, 0, -1) ; {0}[::2]
    {0}[..., ::2] ; {0}[..., 1::3] ; {0}[1:] ; {0}[:-1] ; {0}[..., 1:-1] ; {0}[:, ::2]
    {0}[1::2, 1:] ; {0}.expand(2, *{0}.shape) ; {0}.unsqueeze(1).expand(-1, 3, *{0}.shape[1:])
    {0}.tril() ; {0}.triu(1) ; {0}.movedim(0, -1) ; {0}.movedim(-1, 0) ; {0}.rot90()
    {0}.unfold(-1, 2, 1) ; {0}.unfold(0, 3, 2) ; {0}.unfold(-1, 3, 1) ; {0}.unfold(0, 2, 1)
    {0}.repeat(2, *[1] * ({0}.dim() - 1)) ; {0}.tile(2) ; {0}.repeat_interleave(2, 0)
    {0}.repeat_interleave(3, -1) ; {0}.chunk(2)[-1] ; {0}.chunk(3, -1)[0] ; {0}.split(2, -1)[-1]
    {0}.unflatten(-1, (-1, 2)) ; {0}.unflatten(0, (2, -1)) ; {0}.unflatten(-1, (3, -1))
    {0}.reshape(-1, {0}.shape[0]) ; {0}.reshape({0}.shape[-1], -1) ; {0}.reshape(-1, 1)
    {0}.narrow(0, 0, 1) ; {0}.narrow(-1, 1, 2) ; {0}.swapaxes(0, 1) ; {0}.diag()
    {0}.contiguous().as_strided((3, 2), (1, 1)) ; {0}.contiguous().as_strided((2, 3), (2, 1), 1)
    {0}.ravel() ; {0}[0:0] ; {0}[..., 2:1] ; {0}.unbind(0)[0] ; {0}.unbind(-1)[-1]
    """
)
JOINS = texts(
    """
    torch.cat([{0}, {1}]) ; torch.cat([{0}, {1}], -1) ; torch.stack([{0}, {1}])
    torch.stack([{0}, {1}], -1) ; torch.cat([{0}, {1}.flip(0), {0}]) ; torch.stack([{1}, {0}], 1)
    torch.cat([{0}[..., 1:], {1}[..., :1]], -1) ; torch.hstack([{0}, {1}])
    """
)
PADS = texts(
    """
    F.pad({0}, (1, 2)) ; F.pad({0}, (2, 0), value=1.0) ; F.pad({0}, (0, 0, 1, 1))
    F.pad({0}, (-1, 2)) ; F.pad({0}, (1, 1), mode='reflect')
    F.pad({0}, (2, 1), mode='replicate') ; F.pad({0}, (1, 1), mode='circular')
    F.pad({0}, (1, 1, 1, 1), mode='reflect') ; F.pad({0}, (0, 3, 2, 0), value=-1.0)
    F.pad({0}, (1, 0, -1, 1)) ; F.pad({0}, (1, 0, 2, 1), mode='replicate')
    F.pad({0}, (0, 0, 0, 0, 1, 1))
    """
)
COMPLEX_VIEWS = texts(
    """
    torch.view_as_real({0}) ; {0}.mH ; {0}.conj().transpose(0, -1)
    """
)


def meeting(scope: Scope) -> Drawn | None:
    """A value that meets another view of itself: one that was computed, rather than an input."""
    computed = [each.result for each in scope.statements[-3:]]
    name = scope.pick(_has_numbers)
    if computed and scope.random.random() < 0.8:
        name = scope.random.choice(computed)
    return None if name is None else Drawn(scope.random.choice(MEETINGS), (name,))


def view(scope: Scope) -> Drawn | None:
    """One value seen otherwise."""
    name = scope.pick()
    if name is None:
        return None
    if is_complex(scope.values[name]) and scope.random.random() < 0.3:
        return Drawn(scope.random.choice(COMPLEX_VIEWS), (name,))
    if scope.values[name].dim() > 2 and scope.random.random() < 0.2:
        order = list(range(scope.values[name].dim()))
        scope.random.shuffle(order)
        return Drawn(f"{{0}}.permute({', '.join(map(str, order))})", (name,), True)
    return Drawn(scope.random.choice(PLAIN), (name,), True)


def join(scope: Scope) -> Drawn | None:
    """Two values in one."""
    first = scope.pick()
    if first is None:
        return None
    dtype, rank = scope.values[first].dtype, scope.values[first].dim()
    second = scope.pick(lambda other: other.dtype == dtype and other.dim() == rank)
    assert second is not None
    return Drawn(scope.random.choice(JOINS), (first, second), True)


def pad(scope: Scope) -> Drawn | None:
    """A value with a border."""
    name = scope.pick(_has_numbers)
    return None if name is None else Drawn(scope.random.choice(PADS), (name,), True)


def _has_numbers(value: Tensor) -> bool:
    return is_float(value) or (value.dim() > 0 and not is_complex(value))


FAMILIES = ((meeting, 8), (view, 5), (join, 2), (pad, 1))
