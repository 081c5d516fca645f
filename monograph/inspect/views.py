"""One model in every IR, as lines that know their op, their result and their source line.

What the table of ``monograph inspect`` says is counted in these lines: which of them bear a type,
whether a name is bound twice, which ops are control flow.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from monograph.dataclass import dataclass
from monograph.errors import MonographError
from monograph.ir.graph import Graph
from monograph.ir.location import Location
from monograph.ir.op import Family
from monograph.ir.specialize import specialize_sizes
from monograph.ir.text.printer import print_node

CONTROL = {
    "fx": ("if_", "while_", "scan"),
    "torchscript": ("prim::If", "prim::Loop", "prim::CallMethod"),
    "onnx": ("If", "Loop", "Scan"),
    "stablehlo": ("stablehlo.if", "stablehlo.while", "stablehlo.case"),
    "hlo": ("while", "conditional"),
    "relay": ("if",),
    "monograph": ("if", "while", "scan"),
}
"""Ops with bodies of their own. In FX and TorchScript they are modules that are called."""


@dataclass(frozen=True)
class Line:
    """One operation of an IR, in its own words."""

    text: str
    op: str
    results: tuple[str, ...]
    is_typed: bool
    """Whether the IR says dtype and shape of the result."""
    location: Location | None = None


@dataclass(frozen=True)
class View:
    """A model in one IR; ``problem`` says why it has no lines."""

    name: str
    title: str
    lines: tuple[Line, ...] = ()
    problem: str = ""

    @property
    def typed(self) -> int:
        """How many lines bear the type of their result."""
        return sum(line.is_typed for line in self.lines)

    @property
    def is_ssa(self) -> bool:
        """Whether no name is bound twice."""
        names = Counter(name for line in self.lines for name in line.results)
        return all(count == 1 for count in names.values())

    @property
    def control(self) -> int:
        """How many lines are control flow."""
        return sum(line.op in CONTROL[self.name] for line in self.lines)

    def ops(self) -> Counter[str]:
        """How often each op occurs."""
        return Counter(line.op for line in self.lines)


def _monograph(graph: Graph) -> list[Line]:
    """Weights and constants are left out of every view: they are most of a model's lines."""
    return [
        Line(
            print_node(node),
            node.op.name,
            tuple(f"%{value.name}" for value in node.results),
            True,
            node.location,
        )
        for node in graph.walk()
        if node.op.family is not Family.DATA
    ]


def _fx(graph: Graph) -> list[Line]:
    from monograph.exporters.fx import to_fx

    lines = []
    for node in to_fx(graph).graph.nodes:
        if node.op in ("call_function", "call_method", "call_module"):
            op = _fx_name(node)
            text = f"{node.name} = {op}({_arguments(node)})"
            is_typed = "val" in node.meta or "tensor_meta" in node.meta
            lines.append(Line(text, op, (node.name,), is_typed, node.meta.get("location")))
    return lines


def _fx_name(node: Any) -> str:
    if node.op != "call_function":
        return str(node.target)
    module = getattr(node.target, "__module__", "") or ""
    name = getattr(node.target, "__name__", str(node.target))
    if module.startswith("torch.nn.functional") or module == "torch._C._nn":
        return f"F.{name}"
    return name if module in ("_operator", "builtins") else f"torch.{name}"


def _arguments(node: Any) -> str:
    given = [str(each) for each in node.args]
    return ", ".join([*given, *(f"{key}={value}" for key, value in node.kwargs.items())])


_SCRIPT = re.compile(r"\s*(?P<results>%[^=]*?) = (?P<op>\w+::\w+)(?P<rest>.*)")
_PLACE = re.compile(r" # <eval_with_key>\.\d+:(\d+):\d+.*")


def _torchscript(graph: Graph) -> list[Line]:
    """Its source ranges are lines of the FX code, which know their node."""
    from monograph.exporters.fx import to_fx
    from monograph.exporters.fx.script import script

    module = to_fx(graph)
    nodes = list(module.graph.nodes)
    head = next(k for k, line in enumerate(module.code.split("\n"), 1) if line.startswith("def "))
    known = module.graph.python_code("self")._lineno_map or {}
    lines = []
    for raw in str(script(module, graph.name).graph).split("\n"):
        matched = _SCRIPT.fullmatch(_PLACE.sub("", raw))
        if matched is None or matched["op"] in ("prim::Constant", "prim::GetAttr"):
            continue
        place = _PLACE.search(raw)
        index = known.get(int(place[1]) - head) if place else None
        location = None if index is None else nodes[index].meta.get("location")
        results = tuple(re.findall(r"%[\w.]+", matched["results"]))
        types = matched["results"].split(" : ", 1)[-1]
        is_typed = re.search(r"(Float|Double|Long|Half|Bool|Int)\(\d", types) is not None
        text = _PLACE.sub("", raw).strip()
        lines.append(Line(text, matched["op"], results, is_typed, location))
    return lines


def _onnx(graph: Graph) -> list[Line]:
    from monograph.exporters.onnx import to_onnx

    model = to_onnx(graph)
    typed = {value.name for value in (*model.graph.value_info, *model.graph.output)}
    lines = []
    for node in model.graph.node:
        if node.op_type == "Constant":
            continue
        properties = {each.key: each.value for each in node.metadata_props}
        attributes = ", ".join(each.name for each in node.attribute)
        text = f"{', '.join(node.output)} = {node.op_type}({', '.join(node.input)})"
        text += f" {{{attributes}}}" if attributes else ""
        location = _read_location(properties.get("monograph.source", ""))
        is_typed = all(name in typed for name in node.output)
        lines.append(Line(text, node.op_type, tuple(node.output), is_typed, location))
    return lines


_LOCATION = re.compile(
    r"(?P<file>.+):(?P<line>\d+)(?: in (?P<function>\S+))?(?: \((?P<scope>.*)\))?"
)


def _read_location(text: str) -> Location | None:
    found = _LOCATION.fullmatch(text)
    if found is None:
        return None
    return Location(
        found["file"], int(found["line"]), found["function"] or "", found["scope"] or ""
    )


_MLIR = re.compile(r'\s*(?P<name>%\w+)(?::\d+)? = "?(?P<op>[\w.]+)"?(?P<rest>.*)')
_MLIR_PLACE = re.compile(
    r' loc\((?:"(?P<scope>[^"]*)"\()?"(?P<file>(?:[^"\\]|\\.)*)":(?P<line>\d+):0\)+'
)


def _stablehlo(graph: Graph) -> list[Line]:
    from monograph.exporters.stablehlo import to_stablehlo

    lines = []
    for raw in to_stablehlo(graph, locations=True).split("\n"):
        found = _MLIR.fullmatch(raw)
        if found is None or found["op"] in ("stablehlo.constant", "stablehlo.iota"):
            continue
        place = _MLIR_PLACE.search(raw)
        location = _place(place)
        text = _MLIR_PLACE.sub("", raw).strip()
        lines.append(Line(text, found["op"], (found["name"],), True, location))
    return lines


def _place(found: re.Match[str] | None) -> Location | None:
    if found is None:
        return None
    file, scope = _unescape(found["file"], 16), _unescape(found["scope"] or "", 16)
    return Location(file, int(found["line"]), "", scope)


def _unescape(text: str, base: int) -> str:
    """A string of MLIR, whose escapes are bytes in hexadecimal, or of HLO: in octal, or a sign."""
    number = _HEXADECIMAL if base == 16 else _OCTAL
    plain = text.encode("utf-8", "surrogateescape")
    found = number.sub(lambda each: bytes([int(each[1], base)]) if each[1] else each[2], plain)
    return found.decode("utf-8", "surrogateescape")


_HEXADECIMAL = re.compile(rb"\\(?:([0-9A-Fa-f]{2})|(.))")
_OCTAL = re.compile(rb"\\(?:([0-7]{3})|(.))")


_HLO = re.compile(r"\s*(?:ROOT )?(?P<name>[\w.\-]+) = (?P<type>\(.*?\)|\S+) (?P<op>[\w\-]+)\(.*")
_QUOTED = r"\"(?:[^\"\\]|\\.)*\""
_HLO_METADATA = re.compile(rf", metadata=\{{(?P<content>(?:[^}}\"]|{_QUOTED})*)\}}")
_ENTRY = re.compile(r'(?P<id>\d+) (?:"(?P<text>.*)"|\{(?P<fields>.*)\})')


def _hlo(graph: Graph) -> list[Line]:
    """Fusions and scalar computations of reductions stand in computations of their own."""
    from monograph.exporters.hlo import to_hlo

    lines = []
    head, _, entry = to_hlo(graph, locations=True, large_constants=False).rpartition("ENTRY ")
    frames = _frames(head)
    for raw in entry.split("\n"):
        found = _HLO.fullmatch(raw)
        if found is None or found["op"] in ("constant", "parameter", "iota"):
            continue
        text = _HLO_METADATA.sub("", raw).strip()
        location = _hlo_location(_HLO_METADATA.search(raw), frames)
        lines.append(Line(text, found["op"], (found["name"],), True, location))
    return lines


def _frames(head: str) -> dict[str, tuple[str, int]]:
    """File and line of each stack frame, of the tables before a module's computations."""
    tables: dict[str, dict[str, re.Match[str]]] = {}
    title = ""
    for line in head.split("\n"):
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            title = line.strip()
        else:
            tables.setdefault(title, {})[entry["id"]] = entry
    found = {}
    places = tables.get("FileLocations", {})
    for number, frame in tables.get("StackFrames", {}).items():
        place = _fields(places[_fields(frame["fields"])["file_location_id"]]["fields"])
        name = _unescape(tables["FileNames"][place["file_name_id"]]["text"], 8)
        found[number] = (name, int(place.get("line", "0")))
    return found


def _fields(text: str) -> dict[str, str]:
    found = re.findall(rf"(\w+)=({_QUOTED}|\S+)", text)
    return {key: _unescape(value.strip('"'), 8) for key, value in found}


def _hlo_location(
    metadata: re.Match[str] | None, frames: Mapping[str, tuple[str, int]]
) -> Location | None:
    if metadata is None:
        return None
    fields = _fields(metadata["content"])
    scope = fields.get("op_name", "")
    if fields.get("stack_frame_id") in frames:
        return Location(*frames[fields["stack_frame_id"]], "", scope)
    if "source_file" in fields:
        return Location(fields["source_file"], int(fields.get("source_line", "0")), "", scope)
    return None


def _relay(graph: Graph) -> list[Line]:
    from monograph.exporters.relay import to_relay

    lines = []
    for text, location in to_relay(graph).calls:
        name, call = text.split(" = ", 1)
        lines.append(Line(text, call.split("(", 1)[0], (name,), "ty=" in text, location))
    return lines


VIEWS: Mapping[str, tuple[str, Callable[[Graph], list[Line]]]] = {
    "fx": ("FX", _fx),
    "torchscript": ("TorchScript", _torchscript),
    "onnx": ("ONNX", _onnx),
    "stablehlo": ("StableHLO", _stablehlo),
    "hlo": ("HLO", _hlo),
    "relay": ("Relay", _relay),
    "monograph": ("Monograph", _monograph),
}


def views_of(
    graph: Graph, names: Sequence[str], sizes: Mapping[str, int] | None = None
) -> list[View]:
    """The model in each of these IRs; one that cannot say it tells why."""
    fixed = specialize_sizes(graph, sizes) if sizes else graph
    return [_view(fixed, name) for name in names]


def _view(graph: Graph, name: str) -> View:
    title, read = VIEWS[name]
    try:
        return View(name, title, tuple(read(graph)))
    except MonographError as problem:
        hint = "" if problem.hint is None else f" ({problem.hint})"
        return View(name, title, (), problem.message + hint)
