"""What a pass is, and how to find one by name.

A pass is a frozen dataclass whose fields are its options. It changes a graph in place and reports
whether it did, with counts of what it did. Its name is the name of its file, of its golden tests'
folder and of itself on the command line, where options stand in braces:
``simplify{fast_math=true}``.

    @dataclass(frozen=True)
    class FoldConstants(Pass):
        name = "fold_constants"
        limit: int = 1 << 20

        def run(self, graph: Graph) -> PassResult: ...
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import importlib
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import field
from inspect import isabstract
from typing import Any, ClassVar

from monograph.dataclass import dataclass
from monograph.entry_points import load_entry_point, load_entry_points
from monograph.errors import InputError
from monograph.ir.graph import Graph
from monograph.rewrite.driver import RuleCount, rewrite_graph
from monograph.rewrite.rule import Rule


@dataclass(frozen=True)
class PassResult:
    """What a pass did. ``changed`` is True exactly if the graph now prints differently.

    A pass that rewrites by rules says in ``rules`` what each of them did and took.
    """

    changed: bool
    counters: Mapping[str, int] = field(default_factory=dict)
    rules: Mapping[str, RuleCount] = field(default_factory=dict)


class Pass(ABC):
    """A change of a graph that keeps its meaning. Subclasses are frozen dataclasses."""

    name: ClassVar[str]

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        name = cls.__dict__.get("name")
        if name is None:
            return
        known = _REGISTRY.get(name)
        if known is not None and (known.__module__, known.__qualname__) != _address(cls):
            raise ValueError(f"two passes are called {name!r}")
        _REGISTRY[name] = cls

    @abstractmethod
    def run(self, graph: Graph) -> PassResult:
        """Change ``graph`` in place, the regions of its nodes too."""

    def options(self) -> dict[str, Any]:
        """The options by name, in order of declaration."""
        return {name: getattr(self, name) for name in _option_fields(type(self))}

    def __str__(self) -> str:
        """The spelling that ``make_pass`` reads back; options at their default are left out."""
        fields = _option_fields(type(self))
        given = [
            f"{name}={_option_text(value)}"
            for name, value in self.options().items()
            if value != fields[name].default
        ]
        return f"{self.name}{{{','.join(given)}}}" if given else self.name


class RewritePass(Pass):
    """A pass that is a list of rules, which are applied until none applies any more."""

    @abstractmethod
    def rules(self) -> Sequence[Rule]:
        """The rules, in the order in which they are tried."""

    def run(self, graph: Graph) -> PassResult:
        """Rewrite the graph and its regions; the counters are the hits of each rule."""
        report = rewrite_graph(graph, self.rules(), during=self.name)
        return PassResult(report.changed, report.counters, report.rules)


_REGISTRY: dict[str, type[Pass]] = {}

RENAMED = {
    "narrow_gathers": "slice_gathered_products",
    "norms_by_channel": "decompose_group_norm",
    "settle_masks": "fold_attention_masks",
    "turn_conv_transpose": "conv_transpose_to_conv",
    "turn_weights_back": "fold_transpose_into_dot",
    "visit_images": "tile_batch",
}
"""Earlier names of passes, which still find them."""
_SPELLING = re.compile(r"\s*(?P<name>\w+)\s*(\{(?P<options>.*)\})?\s*", re.DOTALL)


def pass_named(name: str) -> type[Pass]:
    """The pass of that name, or that had it once; its file, or the package that has it as an
    entry point, is imported if need be.
    """
    if name in RENAMED:
        message = f"the pass {name} is called {RENAMED[name]} now"
        warnings.warn(message, FutureWarning, stacklevel=2)
        name = RENAMED[name]
    found = _REGISTRY.get(name)
    if found is None and name in _module_names():
        importlib.import_module(f"monograph.passes.{name}")
        found = _REGISTRY.get(name)
    if found is None and load_entry_point("monograph.passes", name) is not None:
        found = _REGISTRY.get(name)
    if found is not None:
        return found
    known = all_passes()
    near = difflib.get_close_matches(name, known, n=3)
    raise InputError(
        f"there is no pass called {name!r}",
        expected=", ".join(known),
        hint=f"did you mean {' or '.join(near)}?" if near else None,
    )


def all_passes() -> Mapping[str, type[Pass]]:
    """Every pass by name, in alphabetical order; imports all of ``monograph.passes``, and what
    other packages have as entry points.
    """
    for module in _module_names():
        importlib.import_module(f"monograph.passes.{module}")
    load_entry_points("monograph.passes")
    return {name: _REGISTRY[name] for name in sorted(_REGISTRY) if not isabstract(_REGISTRY[name])}


def make_pass(spelling: str, **options: Any) -> Pass:
    """A pass from its spelling: ``simplify``, ``simplify{fast_math=true}``.

    Options may also be given as keywords; a wrong name or type of one is an error that lists the
    right ones.
    """
    match = _SPELLING.fullmatch(spelling)
    if match is None:
        raise InputError(
            f"{spelling!r} does not name a pass",
            expected="name or name{option=value,option=value}",
        )
    cls = pass_named(match["name"])
    given = {**_parse_options(cls, match["options"] or ""), **options}
    fields = _option_fields(cls)
    for name, value in given.items():
        if name not in fields:
            raise InputError(
                f"{cls.name} has no option {name!r}", expected=", ".join(fields) or "no options"
            )
        _check_option(cls, fields[name], value)
    return cls(**given)


def _address(cls: type) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__


def _module_names() -> list[str]:
    import pkgutil

    package = importlib.import_module("monograph.passes")
    return [module.name for module in pkgutil.iter_modules(package.__path__)]


def _option_fields(cls: type[Pass]) -> dict[str, dataclasses.Field[Any]]:
    if not hasattr(cls, "__dataclass_fields__"):
        return {}
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]  # a dataclass, as just seen
    return {option.name: option for option in fields if option.init}


def _parse_options(cls: type[Pass], text: str) -> dict[str, Any]:
    """``limit=10,mode=fast`` as a dict; a value is a Python literal, true, false or a bare word."""
    options: dict[str, Any] = {}
    for part in re.split(r",(?![^()\[\]]*[)\]])", text) if text.strip() else []:
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise InputError(
                f"{cls.name}: {part.strip()!r} is not an option", expected="option=value"
            )
        options[name] = _parse_option(value)
    return options


def _parse_option(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text in words:
        return words[text]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _option_text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return str(value)


def _check_option(cls: type[Pass], option: dataclasses.Field[Any], value: Any) -> None:
    """A value of the default's own kind: an int will do for a float, a bool never for a number."""
    default = option.default
    if default is dataclasses.MISSING or default is None or type(value) is type(default):
        return
    if type(default) is float and type(value) is int:
        return
    raise InputError(
        f"{cls.name}: option {option.name!r} has the wrong type",
        expected=f"{type(default).__name__}, such as {_option_text(default)}",
        found=repr(value),
    )
