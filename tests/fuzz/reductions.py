"""Statements along an axis: sums and other reductions, scans, sorts, softmax."""

from __future__ import annotations

from tests.fuzz.scope import Drawn, Scope, is_complex, is_float, texts

FLOAT = texts(
    """
    {0}.sum(%d) ; {0}.mean(%d) ; {0}.amax(%d) ; {0}.amin(%d) ; {0}.sum(%d, keepdim=True)
    {0}.mean(%d, keepdim=True) ; {0}.var(%d) ; {0}.std(%d, correction=0) ; {0}.logsumexp(%d)
    {0}.norm(dim=%d) ; {0}.prod(%d) ; {0}.softmax(%d) ; {0}.log_softmax(%d) ; {0}.abs().sum(%d)
    {0}.cumsum(%d) ; {0}.max(%d).values ; {0}.min(%d).values ; {0}.square().mean(%d)
    {0}.sort(dim=%d, stable=True).values ; {0}.sort(dim=%d, descending=True, stable=True).values
    {0}.cummax(%d).values ; {0}.logcumsumexp(%d) ; {0}.flip(%d).cumsum(%d) ; {0}.softmax(%d)
    {0}.topk(1, %d).values ; {0}.argmax(%d) ; {0}.argsort(dim=%d, stable=True) ; {0}.diff(dim=%d)
    {0}.sum(%d, dtype=torch.float32) ; F.normalize({0}, dim=%d) ; {0}.cumprod(%d)
    F.softmin({0}, %d) ; {0}.median(%d).values ; {0}.kthvalue(1, %d).values
    {0}.aminmax(dim=%d).max ; {0}.norm(1, %d) ; {0}.norm(float('inf'), %d) ; {0}.nansum(%d)
    torch.var_mean({0}, %d)[1] ; ({0} > 0).sum(%d) ; ({0} > 0).any(%d) ; ({0} < 9).all(%d)
    {0}.count_nonzero(%d)
    """
)
WHOLE = texts(
    """
    {0}.sum() ; {0}.mean() ; {0}.max() ; {0}.min() ; {0}.sum((0, -1)) ; {0}.amax((0, 1))
    {0}.mean((-2, -1), keepdim=True) ; {0}.std() ; {0}.norm() ; {0}.var((0, 1), keepdim=True)
    """
)
INTEGER = texts(
    """
    {0}.sum(%d) ; {0}.amax(%d) ; {0}.amin(%d) ; {0}.cumsum(%d) ; {0}.prod(%d) ; {0}.any(%d)
    {0}.sort(dim=%d, stable=True).values ; {0}.argmin(%d) ; {0}.all(%d) ; {0}.count_nonzero(%d)
    """
)
BOOL = texts(
    """
    {0}.sum(%d) ; {0}.any(%d) ; {0}.all(%d) ; {0}.cumsum(%d) ; {0}.int().amax(%d)
    """
)
COMPLEX = texts(
    """
    {0}.sum(%d) ; {0}.mean(%d) ; {0}.cumsum(%d) ; {0}.abs().sum(%d) ; {0}.prod(%d)
    """
)


def reduction(scope: Scope) -> Drawn | None:
    """A reduction, a scan or a sort of one value."""
    name = scope.pick()
    if name is None:
        return None
    value, axis = scope.values[name], scope.axis(name)
    if axis is None:
        return None
    if is_float(value) and scope.random.random() < 0.12:
        return Drawn(scope.random.choice(WHOLE), (name,))
    if is_float(value):
        table = FLOAT
    elif is_complex(value):
        table = COMPLEX
    else:
        table = BOOL if str(value.dtype) == "torch.bool" else INTEGER
    text = scope.random.choice(table)
    if scope.contents == "special" and "prod(" in text:
        return None  # of huge and tiny numbers, it overflows or not by the order
    return Drawn(text.replace("%d", str(axis)), (name,))


FAMILIES = ((reduction, 5),)
