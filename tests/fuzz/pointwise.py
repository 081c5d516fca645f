"""Elementwise statements: functions of one and of several values, casts, and changes in place."""

from __future__ import annotations

from tests.fuzz.scope import Drawn, Scope, is_complex, is_float, is_integer, name_of, texts

EXACT_UNARY = texts(
    """
    -{0} ; {0}.abs() ; F.relu({0}) ; {0}.floor() ; {0}.ceil() ; {0}.round() ; {0}.trunc()
    {0}.clamp(-1.5, 1.0) ; {0}.clamp(min=-0.5) ; {0} * 2.0 ; {0}.sign() ; {0}.clone() ; {0} * 0.5
    F.hardtanh({0}) ; torch.where({0} > 0, {0}, -{0})
    """
)
UNARY = texts(
    """
    {0}.exp() ; {0}.tanh() ; {0}.sigmoid() ; {0}.abs().sqrt() ; {0}.sqrt() ; {0}.square()
    (1.0 + {0}.abs()).rsqrt() ; (0.5 + {0}.abs()).log() ; {0}.log() ; {0}.sin() ; {0}.cos()
    {0}.erf() ; F.gelu({0}) ; F.gelu({0}, approximate='tanh') ; F.silu({0}) ; {0}.expm1()
    {0}.abs().log1p() ; (1.0 + {0}.abs()).reciprocal() ; F.softplus({0}) ; F.elu({0})
    F.leaky_relu({0}, 0.1) ; {0} + 1.5 ; {0} * 0.3 - 1 ; 1.0 / (2.0 + {0}.abs()) ; {0} / 3
    F.hardswish({0}) ; F.mish({0}) ; {0}.atan() ; {0}.tan() ; {0}.clamp(-0.9, 0.9).asin()
    {0}.pow(3) ; {0}.abs().pow(1.5) ; {0}.exp2() ; {0}.cosh() ; {0} % 1.5 ; {0}.frac()
    {0}.nan_to_num(0.5, 2.0, -2.0) ; F.hardsigmoid({0}) ; F.logsigmoid({0}) ; {0}.sinh()
    {0}.logit(0.1) ; F.softsign({0}) ; F.selu({0}) ; F.celu({0}, 0.7) ; {0}.erfc()
    """
)
PREDICATES = texts(
    """
    {0} > 0 ; {0}.isnan() ; {0} <= 0.5 ; {0} == 0 ; {0}.isfinite() ; {0} != {0} ; {0}.signbit()
    {0} >= {0}.roll(1, -1) ; {0}.logical_not() ; {0}.isinf()
    """
)
INTEGER_UNARY = texts(
    """
    -{0} ; {0}.abs() ; {0} + 3 ; {0} * 2 ; {0} // 3 ; {0} % 5 ; {0} & 6 ; {0} | 1 ; {0} ^ 3 ; ~{0}
    {0} << 1 ; {0} >> 1 ; {0}.clamp(-2, 4) ; {0}.sign() ; {0} / 3 ; {0} > 1 ; {0} == 0
    {0}.square() ; torch.div({0}, 4, rounding_mode='trunc') ; {0}.remainder(-3) ; {0}.fmod(4)
    torch.floor_divide({0}, -2) ; {0}.float()
    """
)
BOOL_UNARY = texts(
    """
    ~{0} ; {0}.logical_not() ; {0}.int() ; {0}.float() ; {0} & True ; {0} ^ True
    """
)
COMPLEX_UNARY = texts(
    """
    -{0} ; {0}.conj() ; {0}.abs() ; {0}.real ; {0}.imag ; {0} * 2j ; {0} + 1 ; {0}.exp()
    torch.view_as_real({0}) ; {0}.square() ; {0}.reciprocal() ; {0}.conj().resolve_conj()
    {0}.angle() ; {0}.real + {0}.imag ; {0} * {0}.conj() ; {0}.sin() ; {0}.sgn()
    """
)
BINARY = texts(
    """
    {0} + {1} ; {0} - {1} ; {0} * {1} ; {0} * {1} + {0} ; {0} / (1.5 + {1}.abs())
    torch.maximum({0}, {1}) ; torch.minimum({0}, {1}) ; torch.where({0} > {1}, {0}, {1} * 2)
    torch.lerp({0}, {1}, 0.3) ; torch.atan2({0}, {1}) ; {0} < {1} ; torch.hypot({0}, {1})
    torch.fmax({0}, {1}) ; torch.fmin({0}, {1}) ; torch.copysign({0}, {1}) ; {0} / {1}
    torch.addcmul({0}, {0}, {1}, value=0.5) ; {0}.sub({1}, alpha=2) ; {0} == {1}
    torch.logaddexp({0}, {1}) ; torch.remainder({0}, {1}.abs() + 1) ; {1} - {0}.exp()
    {0}.sigmoid() * {1} ; F.relu({0} - {1}) ; torch.fmod({0}, {1}.abs() + 1)
    torch.xlogy({0}.abs(), {1}.abs() + 0.5) ; torch.heaviside({0}, {1})
    """
)
EXACT_BINARY = frozenset(
    (
        "torch.copysign({0}, {1})",
        *("{0} * {1}", "{0} + {1}", "{0} - {1}"),
    )
)
"""Which of two zeros is the larger is for nobody to say."""
INTEGER_BINARY = texts(
    """
    {0} + {1} ; {0} - {1} ; {0} * {1} ; {0} & {1} ; {0} | {1} ; {0} ^ {1} ; {0} > {1}
    torch.maximum({0}, {1}) ; torch.minimum({0}, {1}) ; torch.where({0} > {1}, {0}, {1})
    {0} // ({1}.abs() + 1) ; {0} % ({1}.abs() + 1) ; {0} == {1} ; {0} / ({1}.abs() + 1)
    """
)
BOOL_BINARY = texts(
    """
    {0} & {1} ; {0} | {1} ; {0} ^ {1} ; {0} == {1} ; torch.logical_and({0}, ~{1})
    """
)
COMPLEX_BINARY = texts(
    """
    {0} + {1} ; {0} - {1} ; {0} * {1} ; {0} * {1}.conj() ; {0} / ({1} + 3)
    """
)
IN_PLACE = (
    "{r} = {0}.clone()\n{r}.mul_(0.5)",
    "{r} = {0}.clone()\n{r}[..., 0] = 1.0",
    "{r} = {0}.clone()\n{r}[0] += {0}[-1]",
    "{r} = {0} * 2\n{r}[..., ::2] = {0}[..., ::2]",
    "{r} = {0}.clone()\n{r}[1:].add_({0}[:-1])",
    "{r} = {0}.clone()\n{r}.relu_().sub_(0.25)",
    "{r} = {0} + 1\n{r}.transpose(0, -1)[0].zero_()",
    "{r} = {0}.clone()\n{r}[{0} > 0] = 0.5",
    "{r} = torch.zeros_like({0})\n{r}[..., 1:] = {0}[..., :-1]",
    "{r} = {0}.clone()\n{r}.diagonal(0, 0, -1).fill_(3.0)",
    "{r} = torch.empty_like({0})\n{r}.copy_({0}.flip(0))",
)
CAST_TO = (
    "float32",
    "float32",
    "float16",
    "bfloat16",
    "float64",
    "int32",
    "bool",
    "uint8",
    "int64",
)


def unary(scope: Scope) -> Drawn | None:
    """A function of one value, of the functions that its dtype has."""
    name = scope.pick()
    if name is None:
        return None
    value = scope.values[name]
    if is_complex(value):
        return Drawn(scope.random.choice(COMPLEX_UNARY), (name,))
    if is_integer(value):
        return Drawn(scope.random.choice(INTEGER_UNARY), (name,))
    if not is_float(value):
        return Drawn(scope.random.choice(BOOL_UNARY), (name,))
    table = scope.random.choice((EXACT_UNARY, UNARY, UNARY, UNARY, PREDICATES))
    text = scope.random.choice(table)
    # relu(-0.0) is 0.0; torch's is either zero.
    return Drawn(text, (name,), table is not UNARY and "relu" not in text)


def binary(scope: Scope) -> Drawn | None:
    """A function of two values whose shapes broadcast; the second may be a new weight."""
    first = scope.pick()
    if first is None:
        return None
    value = scope.values[first]
    others = scope.names(
        lambda other: other.dtype == value.dtype and _broadcasts(other.shape, value.shape)
    )
    others = [each for each in others if each != first]
    if others and scope.random.random() < 0.75:
        second = scope.random.choice(others)
    else:
        second = scope.weight(_broadcast_shape(scope, tuple(value.shape)), value.dtype)
    table = _binary_table(scope, first)
    text = scope.random.choice(table)
    pair = (first, second) if scope.random.random() < 0.5 else (second, first)
    return Drawn(text, pair, text in EXACT_BINARY)


def in_place(scope: Scope) -> Drawn | None:
    """A copy of a value that is then changed in part, or a value changed where it lies."""
    name = scope.pick(is_float)
    if name is None:
        return None
    if name.startswith("v") and _is_own(scope, name) and scope.random.random() < 0.3:
        text = scope.random.choice(
            ("{r} = {0}.add_(1.0)", "{r} = {0}.mul_(0.5)", "{r} = {0}.neg_()")
        )
        return Drawn(text, (name,))
    return Drawn(scope.random.choice(IN_PLACE), (name,))


def cast(scope: Scope) -> Drawn | None:
    """A value in another dtype; what is not in range of an integer is cut off first."""
    name = scope.pick()
    if name is None:
        return None
    value, wanted = scope.values[name], scope.random.choice(CAST_TO)
    if is_complex(value):
        return None
    if is_float(value) and wanted in ("int32", "uint8", "int64"):
        low = 0 if wanted == "uint8" else -100
        return Drawn(f"{{0}}.nan_to_num(0.0).clamp({low}, 100).to(torch.{wanted})", (name,))
    if is_integer(value) and wanted == "uint8":
        return Drawn("{0}.clamp(0, 100).to(torch.uint8)", (name,))
    return Drawn(f"{{0}}.to(torch.{wanted})", (name,))


def _is_own(scope: Scope, name: str) -> bool:
    """Whether a value shares memory with no source: torch would change the caller's tensor."""
    address = scope.values[name].untyped_storage().data_ptr()
    sources = (scope.values[each.name] for each in scope.sources)
    return all(each.untyped_storage().data_ptr() != address for each in sources)


def _binary_table(scope: Scope, name: str) -> tuple[str, ...]:
    value = scope.values[name]
    if is_complex(value):
        return COMPLEX_BINARY
    if is_integer(value):
        return INTEGER_BINARY
    return BINARY if is_float(value) else BOOL_BINARY


def _broadcasts(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    pairs = zip(reversed(left), reversed(right), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def _broadcast_shape(scope: Scope, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to another: some axes are 1, the first ones may be missing."""
    kept = shape[scope.random.randrange(len(shape) + 1) :] if scope.random.random() < 0.5 else shape
    return tuple(1 if scope.random.random() < 0.25 else size for size in kept)


FAMILIES = ((unary, 6), (binary, 6), (in_place, 1), (cast, 1))

__all__ = ["FAMILIES", "name_of"]
