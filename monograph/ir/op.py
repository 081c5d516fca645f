"""What an op is, and the registry of all of them.

An op is a frozen dataclass: the class is the definition (type rule, meaning, gradient,
decomposition, samples, all in one block) and an instance is the operation with its attributes,
``Softmax(axis=-1)``. Instances are immutable and hashable, so a node's identity for common
subexpressions is ``(op, operands)``, and ``isinstance(node.op, Softmax)`` narrows the type of its
attributes for the reader and the type checker alike.

    @op("relu", traits=Trait.ELEMENTWISE | Trait.IDEMPOTENT)
    class Relu(Op):
        \"\"\"max(x, 0); a NaN stays a NaN.\"\"\"

        def infer(self, x: TensorType) -> TensorType: ...
        def evaluate(self, x: Array) -> Array: ...
        def vjp(self, node: Node, grad: Value) -> Gradients: ...
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import FrozenInstanceError
from enum import Enum, Flag, auto
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar, dataclass_transform

from monograph.dataclass import dataclass
from monograph.entry_points import load_entry_point, load_entry_points
from monograph.errors import DifferentiationError, InputError, TypeRuleError
from monograph.ir.dims import Dim, Symbol, SymbolicDim
from monograph.ir.namespaces import load_namespace
from monograph.ir.types import Array

if TYPE_CHECKING:
    from monograph.ir.graph import Graph, Value

Gradients: TypeAlias = "tuple[Value | None, ...]"


class Family(Enum):
    """The five kinds of node."""

    COMPUTE = "compute"
    DATA = "data"
    SHAPE = "shape"
    CONTROL = "control"
    MEMORY = "memory"


class Trait(Flag):
    """What passes may assume of an op without knowing it."""

    NONE = 0
    COMMUTATIVE = auto()
    """f(a, b) is f(b, a), bit for bit."""
    ASSOCIATIVE = auto()
    """f(f(a, b), c) is f(a, f(b, c)) in exact arithmetic (floats round differently)."""
    IDEMPOTENT = auto()
    """f(f(x)) is f(x), bit for bit."""
    INVOLUTION = auto()
    """f(f(x)) is x, bit for bit."""
    ELEMENTWISE = auto()
    """Each result element depends on the elements at its own (broadcast) position alone."""
    REDUCTION = auto()
    """Combines the elements along some axes."""
    EFFECT = auto()
    """Does more than return its results: never removed, duplicated, merged or folded."""
    STORAGE = auto()
    """Its evaluation takes elements as they are stored; the interpreter does not widen them."""
    COLLECTIVE = auto()
    """Combines values across the devices of a mesh."""
    SEQUENCES = auto()
    """Takes sequence or optional operands as well as tensors."""
    CONTRACTION = auto()
    """Multiplies and sums: each element of its operands is read many times."""
    WINDOW = auto()
    """Each result element looks at a window of its operand; windows overlap."""
    GENERATOR = auto()
    """Its elements are made of their positions alone: computing one again costs nothing."""
    MOVE = auto()
    """Gives its operand's elements other places, and is part of a subscript where it is read."""
    SUBSCRIPT = auto()
    """Index arithmetic, of whole numbers: part of a subscript where its result is a position."""
    TRANSCENDENTAL = auto()
    """Takes a dozen instructions an element, or more."""
    KEEPS_AXES = auto()
    """Its result's axes are those of its first operand, though it is not elementwise."""


class _Frozen:
    """What refuses every change. A dataclass that is frozen guards its own fields alone."""

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


@dataclass(frozen=True, eq=False, repr=False)
class Op(_Frozen):
    """Base of every op. Subclasses are made by the ``@op`` decorator; fields are attributes.

    ``infer`` and ``evaluate`` take the operands as positional parameters with names of their own,
    which error messages use; parameters with a default are optional trailing operands, and
    ``*name`` takes any number. An op with regions takes them first: ``infer(regions, *types)`` and
    ``evaluate(regions, run, *arrays)``, where ``run(region, arrays)`` interprets a region.
    """

    name: ClassVar[str]
    family: ClassVar[Family]
    traits: ClassVar[Trait]
    region_names: ClassVar[tuple[str, ...]]
    torch_name: ClassVar[str] = ""
    onnx_name: ClassVar[str] = ""
    """What frameworks call it; empty if they have no such op, or one that needs a converter."""
    operand_names: ClassVar[tuple[str, ...]]
    arity: ClassVar[tuple[int, int | None]]
    attribute_names: ClassVar[tuple[str, ...]]
    required_attributes: ClassVar[tuple[str, ...]]
    _symbolic_attributes: ClassVar[tuple[str, ...]]
    complex_loops: ClassVar[bool] = False
    """Whether the loops that it states are right for complex numbers too."""

    def infer(self, *operands: Any, **_: Any) -> Any:
        """The result type, or the tuple of result types, of operands of these types."""
        raise NotImplementedError(f"{self.name} has no type rule")

    def holds_at_all_sizes(self, *operands: Any) -> bool:
        """Whether the type rule, which takes these symbolic types, refuses no sizes of the symbols.

        Where it is not known to, it is asked again at each new size, before a program runs there.
        """
        return False

    def evaluate(self, *operands: Any, **_: Any) -> Any:
        """The result array, or the tuple of them: the meaning of the op, in NumPy."""
        raise NotImplementedError(f"{self.name} has no evaluation")

    def vjp(self, node: Any, *grads: Any, **_: Any) -> Any:
        """Gradients of the operands, as graph, given those of the results.

        ``node`` gives operands and results. A result that the loss does not depend on arrives as
        zeros. The tuple has one entry an operand, None where no gradient flows.
        """
        raise DifferentiationError(
            f"{self.name} has no gradient",
            hint="stop_gradient(x) cuts the path to it, if no gradient is wanted there",
        )

    def decompose(self, *operands: Any, **_: Any) -> Any:
        """The same computation in more primitive ops, as graph; only composites have one."""
        raise NotImplementedError(f"{self.name} is a primitive")

    def lower(self, b: Any, index: Any, result: int = 0) -> Any:
        """The element at ``index`` of a result, as a scalar expression: see ``ir.lower``.

        An elementwise op needs none: it is the scalar function of its own name.
        """
        raise NotImplementedError(f"{self.name} is not lowered element by element")

    def lower_loops(self, b: Any) -> None:
        """The loops that fill the results, for an op without one formula: see ``ir.lower``."""
        raise NotImplementedError(f"{self.name} is not lowered to loops")

    def has_loops(self) -> bool:
        """Whether it says which loops fill its results, with these attributes."""
        return type(self).lower_loops is not Op.lower_loops

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Inputs that show the op at work and at its edges; tests run them on every target."""
        return iter(())

    @classmethod
    def is_composite(cls) -> bool:
        """Whether it decomposes into other ops."""
        return cls.decompose is not Op.decompose

    @classmethod
    def is_lowerable(cls) -> bool:
        """Whether it says itself what to compute: one element of its result, or in what loops."""
        return cls.has_lowering() or cls.lower_loops is not Op.lower_loops

    @classmethod
    def has_lowering(cls) -> bool:
        """Whether it says how one element of its result is computed."""
        return cls.lower is not Op.lower

    @classmethod
    def is_differentiable(cls) -> bool:
        """Whether it has a gradient."""
        return cls.vjp is not Op.vjp

    def has(self, trait: Trait) -> bool:
        """Whether the op has every one of these traits."""
        return trait in self.traits

    def attributes(self) -> dict[str, Any]:
        """The attributes by name, in order of declaration."""
        return {name: getattr(self, name) for name in self.attribute_names}

    def substitute(self, bindings: Mapping[Symbol, Dim]) -> Op:
        """The op with the symbols in its attributes replaced."""
        changes: dict[str, Any] = {}
        for name in self._symbolic_attributes:
            old = getattr(self, name)
            new = _substitute(old, bindings)
            if new is not old:
                changes[name] = new
        if not changes:
            return self
        return dataclasses.replace(self, **changes)

    def symbols(self) -> Iterator[Symbol]:
        """The symbols that the attributes mention."""
        for name in self._symbolic_attributes:
            yield from _symbols(getattr(self, name))

    def binds(self) -> tuple[Symbol, ...]:
        """The symbols whose sizes its evaluation decides, as ``nonzero`` does.

        Shapes elsewhere may mention them without reading its result.
        """
        return ()

    def __call__(self, *operands: Any, regions: Sequence[Graph] = ()) -> Any:
        """Add the op to the graph that its operands live in; the result, or the tuple of them."""
        from monograph.ir.build import apply_any

        return apply_any(self, operands, regions)

    def _key(self) -> tuple[object, ...]:
        return tuple(_exact(getattr(self, name)) for name in self.attribute_names)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other):
            return False
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash((self.name, self._key()))

    def __repr__(self) -> str:
        attributes = ", ".join(f"{name}={value!r}" for name, value in self.attributes().items())
        return f"{self.name}({attributes})"


@dataclass(frozen=True)
class Sample:
    """One call that tests make: ``apply(*operands)`` where ``apply`` is an op or builds graph.

    ``gradient`` says whether finite differences make sense at these operands: not at a kink, a
    tie or an infinity.
    """

    apply: Callable[..., Any]
    operands: tuple[Array, ...]
    note: str = ""
    gradient: bool = True


_REGISTRY: dict[str, type[Op]] = {}
OpClass = TypeVar("OpClass", bound=type[Op])


@dataclass_transform(frozen_default=True, eq_default=False)
def op(
    name: str,
    *,
    family: Family = Family.COMPUTE,
    traits: Trait = Trait.NONE,
    regions: tuple[str, ...] = (),
    torch: str = "",
    onnx: str = "",
) -> Callable[[OpClass], OpClass]:
    """Make a class an op: a frozen dataclass, known to the registry by ``name``.

    ``torch`` and ``onnx`` are what these call an op on one or two tensors that means the same:
    ``erfinv`` or ``mine::wave``, ``Erf`` or ``my.domain::Wave``. Nothing else is then needed to
    read it from there.
    Another class of a name that is taken is an error; the same class, defined once more (a cell of
    a notebook that is run again), takes its place.
    """

    def define(cls: OpClass) -> OpClass:
        if _has_own_fields(cls):
            dataclass(frozen=True, eq=False, repr=False)(cls)
        fields = dataclasses.fields(cls)
        cls.name = name
        cls.family = family
        cls.traits = traits
        cls.region_names = regions
        cls.torch_name, cls.onnx_name = torch, onnx
        cls.attribute_names = tuple(field.name for field in fields)
        cls.required_attributes = tuple(
            field.name
            for field in fields
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        )
        cls._symbolic_attributes = tuple(
            field.name for field in fields if "Dim" in str(field.type) or "Shape" in str(field.type)
        )
        cls.operand_names, cls.arity = _operands(cls.infer, skip=2 if regions else 1)
        known = _REGISTRY.get(name)
        if known is not None and _address(known) != _address(cls):
            raise ValueError(f"two ops are called {name!r}")
        if not fields:
            _make_singleton(cls)
        _REGISTRY[name] = cls
        return cls

    return define


def _address(cls: type) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__


def lookup(name: str) -> type[Op]:
    """The op of that name, or an error that suggests the nearest ones."""
    found = find_op(name)
    if found is not None:
        return found
    import difflib

    near = difflib.get_close_matches(name, _REGISTRY, n=3)
    raise InputError(
        f"there is no op called {name!r}",
        hint=f"did you mean {' or '.join(near)}?" if near else "`monograph ops` lists them all",
    )


def find_op(name: str) -> type[Op] | None:
    """The op of that name, if there is one.

    A frontend's is found by importing the frontend, another package's by its entry point.
    """
    found = _REGISTRY.get(name) or registry().get(name)
    if found is None:
        load_namespace(name)
        found = _REGISTRY.get(name)
    if found is None and load_entry_point("monograph.ops", name) is not None:
        found = _REGISTRY.get(name)
    return found


def op_called(name: str, *, torch: bool = False) -> type[Op] | None:
    """The op that ONNX, or torch, knows by a name: one that is loaded, or else any."""
    attribute = "torch_name" if torch else "onnx_name"
    for known in (lambda: _REGISTRY, registry):
        for each in known().values():
            if getattr(each, attribute) == name:
                return each
    return None


def all_ops() -> Mapping[str, type[Op]]:
    """Every op by name, those that other packages have as entry points too."""
    load_entry_points("monograph.ops")
    return registry()


def registry() -> Mapping[str, type[Op]]:
    """Every op by name; the first call loads all of ``monograph.ops``, which fills it."""
    import monograph.ops

    monograph.ops.load_all()
    return _REGISTRY


def make(name: str, **attributes: Any) -> Op:
    """An op by name with its attributes; the error for a wrong one lists the right ones."""
    cls = lookup(name)
    unknown = [key for key in attributes if key not in cls.attribute_names]
    if unknown:
        raise InputError(
            f"{name} has no attribute {unknown[0]!r}",
            expected=", ".join(cls.attribute_names) or "no attributes",
            found=", ".join(attributes),
        )
    missing = [key for key in cls.required_attributes if key not in attributes]
    if missing:
        raise InputError(
            f"{name} needs the attribute {missing[0]!r}",
            expected=", ".join(cls.attribute_names),
            found=", ".join(attributes) or "none",
        )
    frozen = {key: freeze(value) for key, value in attributes.items()}
    return cls(**frozen)


def freeze(value: Any) -> Any:
    """Lists become tuples, deeply, so that an attribute cannot change under the graph."""
    if isinstance(value, list | tuple):
        return tuple(freeze(item) for item in value)
    return value


def check_operand_count(op_: Op, count: int) -> None:
    """Raise a TypeRuleError unless the op takes that many operands."""
    fewest, most = op_.arity
    if fewest <= count and (most is None or count <= most):
        return
    bound = (
        f"{fewest}" if most == fewest else f"{fewest} to {'any number' if most is None else most}"
    )
    names = f" ({', '.join(op_.operand_names)})" if op_.operand_names else ""
    raise TypeRuleError(
        f"{op_.name}: wrong number of operands", expected=bound + names, found=str(count)
    )


def _has_own_fields(cls: type[Op]) -> bool:
    """Whether a class adds attributes; most ops add none, and are the dataclass their base is.

    Making a dataclass takes longer than anything else in defining an op, and there are hundreds.
    """
    own = inspect.get_annotations(cls).values()
    return any(not str(each).startswith("ClassVar") for each in own)


def _operands(infer: Any, skip: int) -> tuple[tuple[str, ...], Any]:
    """Operand names and (fewest, most) from the parameters of a type rule.

    Read from its code: ``inspect.signature`` finds the same in fifty times the time.
    """
    code = infer.__code__
    names = code.co_varnames[skip : code.co_argcount]
    fewest = len(names) - len(infer.__defaults__ or ())
    if not code.co_flags & inspect.CO_VARARGS:
        return names, (fewest, len(names))
    rest = code.co_varnames[code.co_argcount + code.co_kwonlyargcount]
    return (*names, rest), (fewest, None)


def _make_singleton(cls: type[Op]) -> None:
    instance = object.__new__(cls)
    cls.__new__ = lambda _: instance  # type: ignore[assignment,return-value]  # one object for all


def _exact(value: Any) -> Any:
    """A stand-in for an attribute that is equal only for the same type and bits."""
    if isinstance(value, float):
        return ("float", value.hex())
    if isinstance(value, complex):
        return ("complex", value.real.hex(), value.imag.hex())
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, tuple):
        return tuple(map(_exact, value))
    return value


def _substitute(value: Any, bindings: Mapping[Symbol, Dim]) -> Any:
    if isinstance(value, SymbolicDim):
        return value.substitute(bindings)
    if isinstance(value, tuple):
        new = tuple(_substitute(item, bindings) for item in value)
        return value if all(a is b for a, b in zip(new, value, strict=True)) else new
    return value


def _symbols(value: Any) -> Iterator[Symbol]:
    if isinstance(value, SymbolicDim):
        yield from value.symbols()
    elif isinstance(value, tuple):
        for item in value:
            yield from _symbols(item)
