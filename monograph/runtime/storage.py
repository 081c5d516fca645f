"""Programs and graphs as the parts of a bundle, and back.

::

    program.o        the object code
    program.json     symbols, slots, steps, result codes, weights, nodes for the interpreter, and
                     nodes whose types must hold for the sizes of a call
    graph.ir         in place of both: a graph that the interpreter runs as a whole
    (arrays)         weights, under the names of their slots, and what was packed of those that
                     calls do not read

A weight that the reader has at hand (the cache is asked with the model's own graph) is stored as
its number among the graph's weights and constants, and one that is computed of such weights as the
op that does it; all others are stored as arrays. Reading needs
neither the compiler nor a frontend, unless a stored node itself names a frontend's op.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TypeAlias, cast

from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.ir.contents import contents_of
from monograph.ir.data import ArrayData, Data, MissingData
from monograph.ir.dims import Symbol, evaluate_dim
from monograph.ir.graph import Graph, Node, copy_node
from monograph.ir.lazy_data import LazyData
from monograph.ir.named import can_name, make_named_class
from monograph.ir.text.printer import print_graph
from monograph.ir.tree import LEAF, Structure
from monograph.ir.types import Array, TensorType, ValueType, symbols_of
from monograph.program.code import Code, SlotKind
from monograph.program.records import (
    RecordReader,
    exactly,
    read_failures,
    read_symbols,
    require_type,
    unreadable,
    write_failures,
    write_record,
    write_symbols,
)
from monograph.runtime.bundle import Bundle, Json, is_text
from monograph.runtime.sizes import Guard
from monograph.runtime.weight_ownership import Held, read_by_calls

Named: TypeAlias = tuple[str, str]
"""The name of an input or output, and its type as text."""

OBJECT = "program.o"
PROGRAM = "program.json"
GRAPH = "graph.ir"


@dataclass
class BundleParts:
    """What of a program goes into a bundle beside its manifest."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)

    def add_array(self, name: str, array: Array) -> str:
        """Store an array under this name, or another if it is taken or cannot be one."""
        chosen = name
        while not is_text(chosen) or chosen in self.arrays:
            chosen = f"array.{len(self.arrays)}" if chosen == name else f"{chosen}.1"
        self.arrays[chosen] = array
        return chosen


# Programs -----------------------------------------------------------------------------------------


def write_code(
    code: Code,
    model: Graph | None = None,
    guards: Sequence[Guard] = (),
    prepared: Mapping[int, Array] | None = None,
    arrays: BundleParts | None = None,
) -> BundleParts:
    """The parts of a program; ``model`` is the graph that its reader will have at hand.

    ``guards`` are the nodes whose type rules are asked about each new size. ``prepared`` is what
    was made of weights alone, by slot: stored in place of those weights that no call reads.
    ``arrays`` takes the arrays, if other programs are stored beside this one.
    """
    parts = arrays or BundleParts()
    read = range(len(code.weights)) if prepared is None else read_by_calls(code)
    stored = [] if model is None else list_data(model)
    numbers = {id(data): number for number, data in enumerate(stored)}
    names = {slot.number: slot.name for slot in code.slots if slot.kind is SlotKind.WEIGHT}
    weights: list[Json] = []
    for number, data in enumerate(code.weights):
        if number not in read:
            weights.append({"packed": str(data.type)})
        else:
            name = names.get(number, f"weight.{number}")
            weights.append(_write_weight(data, name, numbers, parts))
    document: dict[str, Json] = {
        "symbols": write_symbols(code.sizes),
        "slots": [write_record(slot) for slot in code.slots],
        "steps": [write_record(step) for step in code.steps],
        "failures": write_failures(code.steps, code.failures),
        "weights": weights,
        "fallbacks": [_write_node(node, model, parts) for node in code.fallbacks],
        "codes": dict(code.codes),
        "guards": [_write_guard(guard, code, parts) for guard in _different(guards)],
        "prepared": [
            {"slot": slot, "array": parts.add_array(f"packed.{code.slots[slot].name}", array)}
            for slot, array in (prepared or {}).items()
        ],
    }
    text = json.dumps(document, separators=(",", ":")).encode()
    return BundleParts({OBJECT: code.object, PROGRAM: text}, parts.arrays)


def read_code(bundle: Bundle, model: Graph | None = None) -> Code:
    """The program that ``write_code`` wrote."""
    document = _document(bundle)
    symbols = read_symbols(document.get("symbols"))
    reader = RecordReader(symbols)
    steps = tuple(reader.step(each) for each in require_type(document.get("steps"), list))
    stored = [] if model is None else list_data(model)
    return Code(
        _blob(bundle, OBJECT),
        tuple(reader.slot(each) for each in require_type(document.get("slots"), list)),
        symbols,
        steps,
        read_failures(document.get("failures"), steps),
        tuple(
            _read_weight(each, bundle, stored) for each in require_type(document["weights"], list)
        ),
        tuple(
            _read_node(each, bundle, model) for each in require_type(document["fallbacks"], list)
        ),
        codes={
            name: require_type(each, str)
            for name, each in require_type(document.get("codes"), dict).items()
        },
    )


def read_guards(bundle: Bundle) -> tuple[Guard, ...]:
    """The nodes that were stored as guards, with the lengths of the scans around them."""
    document = _document(bundle)
    reader = RecordReader(read_symbols(document.get("symbols")))
    found = []
    for each in require_type(document.get("guards"), list):
        given = require_type(each, dict)
        lengths = tuple(map(reader.size, require_type(given.get("lengths"), list)))
        found.append(Guard(_read_node(given.get("node"), bundle, None), lengths))
    return tuple(found)


def read_prepared(bundle: Bundle, code: Code) -> dict[int, Array] | None:
    """What was made of weights alone, by slot; None if the program makes that itself."""
    wanted = {k for k, slot in enumerate(code.slots) if slot.kind is SlotKind.PREPARED}
    found = {}
    for each in require_type(_document(bundle).get("prepared"), list):
        given = require_type(each, dict)
        slot, array = (
            require_type(given.get("slot"), int),
            _array(bundle, require_type(given.get("array"), str)),
        )
        if slot not in wanted or array.nbytes != evaluate_dim(code.slots[slot].nbytes, {}):
            raise unreadable(f"what is packed for slot {slot} is not what the program reads")
        found[slot] = array
    if found and found.keys() != wanted:
        raise unreadable(f"{len(wanted - found.keys())} packed weights are missing")
    return found if found or not wanted else None


def _different(guards: Sequence[Guard]) -> list[Guard]:
    """One node of those that apply an op to the same types: twelve equal layers ask one layer's."""
    found: dict[object, Guard] = {}
    for guard in guards:
        types = tuple(value.type for value in (*guard.node.operands, *guard.node.results))
        found.setdefault((guard.node.op, types, guard.lengths), guard)
    return list(found.values())


def list_data(graph: Graph) -> list[Data]:
    """The contents of a graph's weights and constants, in order, those in regions too."""
    found = (contents_of(node) for node in graph.walk())
    return [data for data in found if data is not None]


def _document(bundle: Bundle) -> Mapping[str, Json]:
    try:
        found = json.loads(_blob(bundle, PROGRAM))
    except ValueError as problem:
        raise unreadable(f"{PROGRAM} is not JSON: {problem}") from None
    document: dict[str, Json] = require_type(found, dict)
    missing = {"weights", "fallbacks"} - document.keys()
    if missing:
        raise unreadable(f"{PROGRAM} has no {', '.join(sorted(missing))}")
    return document


def _blob(bundle: Bundle, name: str) -> bytes:
    if name not in bundle.blobs:
        raise unreadable(f"{name} is missing")
    return bundle.blobs[name]


def _write_weight(data: Data, name: str, numbers: Mapping[int, int], parts: BundleParts) -> Json:
    """A weight that the model has, or what it is computed of, or else its contents."""
    known = numbers.get(id(data))
    if known is not None:
        return {"model": known}
    if not numbers or not isinstance(data, LazyData):
        return {"array": parts.add_array(name, data.array())}
    graph = Graph("computed")
    operands = [graph.add_input(f"x{k}", each.type) for k, each in enumerate(data.sources)]
    graph.set_outputs(graph.create(data.op, operands).results)
    of = [_write_weight(each, f"{name}.of", numbers, parts) for each in data.sources]
    return {"computed": print_graph(graph), "of": of}


def _read_weight(value: Json, bundle: Bundle, stored: Sequence[Data]) -> Data:
    given = require_type(value, dict)
    if "array" in given:
        return ArrayData(_array(bundle, require_type(given["array"], str)))
    if "packed" in given:
        type_ = require_type(_type(require_type(given["packed"], str)), TensorType)
        released = Held(MissingData(type_, ""))
        released.release()
        return released
    if "computed" in given:
        graph = _parse(require_type(given["computed"], str), {}, bundle, "a computed weight")
        of = [_read_weight(each, bundle, stored) for each in require_type(given.get("of"), list)]
        types = [value.type for value in graph.inputs]
        if len(graph) != 1 or types != [each.type for each in of]:
            raise unreadable("a weight is not computed of what is stored with it")
        return LazyData(graph.nodes[0].op, tuple(of))
    number = require_type(given.get("model"), int)
    if not 0 <= number < len(stored):
        raise unreadable(f"it needs weight {number} of a model that has {len(stored)}")
    return stored[number]


def _array(bundle: Bundle, name: str) -> Array:
    if name not in bundle.arrays:
        raise unreadable(f"the array {name} is missing")
    return bundle.arrays[name]


# Nodes --------------------------------------------------------------------------------------------


def _write_node(node: Node, model: Graph | None, parts: BundleParts) -> Json:
    """A node as a graph of its own, and the model's node at whose place in the source it stands."""
    graph = Graph("fallback")
    operands = dict.fromkeys(node.operands)
    mapping = {value: graph.add_input(value.name, value.type) for value in operands}
    graph.set_outputs(copy_node(node, graph, mapping).results)
    nodes = () if model is None or node.location is None else model.walk()
    same = (number for number, each in enumerate(nodes) if each.location is node.location)
    return {
        "graph": print_graph(graph, locations=True),
        "weights": _write_weights(graph, parts),
        "at": next(same, None),
    }


def _write_guard(guard: Guard, code: Code, parts: BundleParts) -> Json:
    """A node to ask, with those lengths of scans that the sizes of a call decide."""
    lengths = [
        dim if isinstance(dim, int) else str(dim)
        for dim in guard.lengths
        if isinstance(dim, int) or set(dim.symbols()) <= set(code.sizes)
    ]
    return {"node": _write_node(guard.node, None, parts), "lengths": cast(Json, lengths)}


def _read_node(value: Json, bundle: Bundle, model: Graph | None) -> Node:
    given = require_type(value, dict)
    text = require_type(given.get("graph"), str)
    graph = _parse(text, given.get("weights"), bundle, "a stored node")
    node = graph.nodes[0] if len(graph) == 1 else None
    if node is None:
        raise unreadable(f"a node for the interpreter is a graph of {len(graph)} nodes")
    at = given.get("at")
    if model is not None and at is not None:
        number = require_type(at, int)
        node.location = next(
            (each.location for k, each in enumerate(model.walk()) if k == number), None
        )
    return node


# Graphs -------------------------------------------------------------------------------------------


def write_graph(graph: Graph) -> BundleParts:
    """The parts of a graph that the interpreter runs as a whole."""
    parts = BundleParts()
    weights = _write_weights(graph, parts)
    text = print_graph(graph, locations=True)
    parts.blobs[GRAPH] = text.encode()
    parts.blobs[PROGRAM] = json.dumps({"weights": weights, "fallbacks": []}).encode()
    return parts


def read_graph(bundle: Bundle) -> Graph:
    """The graph that ``write_graph`` wrote."""
    try:
        text = _blob(bundle, GRAPH).decode()
    except UnicodeDecodeError as problem:
        raise unreadable(f"{GRAPH} is not text: {problem}") from None
    return _parse(text, _document(bundle)["weights"], bundle, GRAPH)


def _write_weights(graph: Graph, parts: BundleParts) -> Json:
    """Store the contents of a graph's weights; their digests, which its text has, find them."""
    from monograph.ops.data import Weight  # reading a program needs no ops

    found: dict[str, Json] = {}
    for node in graph.walk():
        if not isinstance(node.op, Weight):
            continue
        data = node.op.data
        if data.digest not in found:
            label = node.op.label
            found[data.digest] = parts.add_array(label, data.array())
    return found


def _parse(text: str, weights: Json, bundle: Bundle, source: str) -> Graph:
    names = require_type(weights, dict)

    def find(label: str, digest: str, type_: TensorType) -> Data | None:
        if digest not in names:
            raise unreadable(f"the contents of the weight {label} are missing")
        return ArrayData(_array(bundle, require_type(names[digest], str)), type_.dtype)

    from monograph.ir.text.parser import parse_with  # nothing that is compiled is parsed

    return parse_with(text, find, source)


def _type(text: str, symbols: Mapping[str, Symbol] | None = None) -> ValueType:
    from monograph.ir.text.parser import parse_type

    return parse_type(text, symbols)


# How a program is called --------------------------------------------------------------------------


def write_signature(graph: Graph, outputs: Sequence[Named]) -> dict[str, Json]:
    """Names and types of a graph's inputs and outputs, and which of them are state."""
    symbols = {symbol for value in graph.inputs for symbol in symbols_of(value.type)}
    ordered = sorted(symbols, key=lambda symbol: symbol.name)
    return {
        "name": graph.name,
        "symbols": write_symbols(ordered),
        "inputs": [[value.name, str(value.type)] for value in graph.inputs],
        "outputs": [[name, text] for name, text in outputs],
        "updates": [[output, input_] for output, input_ in graph.updates.items()],
        "donated": sorted(graph.donated),
    }


def read_signature(value: Json) -> Graph:
    """A graph of the stored inputs and nothing else."""
    given = require_type(value, dict)
    symbols = {symbol.name: symbol for symbol in read_symbols(given.get("symbols"))}
    graph = Graph(require_type(given.get("name"), str))
    donated = require_type(given.get("donated"), list)
    for number, each in enumerate(require_type(given.get("inputs"), list)):
        name, text = exactly(each, 2)
        type_ = _type(require_type(text, str), symbols)
        graph.add_input(require_type(name, str), type_, donate=number in donated)
    pairs = [exactly(pair, 2) for pair in require_type(given.get("updates"), list)]
    graph.updates = {
        require_type(output, int): require_type(input_, int) for output, input_ in pairs
    }
    return graph


def read_outputs(value: Json) -> tuple[Named, ...]:
    """Names and types of what a stored program returns."""
    pairs = [
        exactly(pair, 2) for pair in require_type(require_type(value, dict).get("outputs"), list)
    ]
    return tuple((require_type(name, str), require_type(text, str)) for name, text in pairs)


def write_structure(structure: Structure) -> dict[str, Json]:
    """The nesting of arguments or results; of a named tuple or dataclass, the names alone."""
    keys: list[Json] = []
    for key in structure.keys:
        if key is not None and type(key) not in (str, int, bool):
            raise InputError(
                "this key of a dict cannot be stored",
                expected="a str, an int, a bool or None",
                found=repr(key),
            )
        keys.append(key)
    name = "" if structure.maker is None else structure.maker.__name__
    if structure.maker is not None and not all(map(can_name, keys)):
        raise InputError(
            f"the fields of {name} cannot be stored",
            expected="names that do not begin with an underscore",
            found=f"{name}({', '.join(map(str, keys))})",
        )
    return {
        "kind": structure.kind,
        "name": name,
        "keys": keys,
        "children": [write_structure(child) for child in structure.children],
    }


def read_structure(value: Json) -> Structure:
    """What ``write_structure`` wrote."""
    given = require_type(value, dict)
    kind = require_type(given.get("kind"), str)
    if kind == "leaf":
        return LEAF
    if kind not in ("none", "tuple", "list", "dict", "record", "fields"):
        raise unreadable(f"a structure is of an unknown kind, {kind!r}")
    keys = tuple(require_type(given.get("keys"), list))
    children = tuple(read_structure(child) for child in require_type(given.get("children"), list))
    if kind == "none" and children:
        raise unreadable("there is something inside of nothing")
    if kind not in ("dict", "record", "fields"):
        return Structure(kind, (), children)
    simple = all(key is None or type(key) in (str, int, bool) for key in keys)
    if len(keys) != len(children) or not simple or len(set(keys)) != len(keys):
        raise unreadable("a structure has more keys than values, or fewer, or one twice")
    if kind == "dict":
        return Structure(kind, keys, children)
    name = require_type(given.get("name"), str)
    if not name.isidentifier() or not all(map(can_name, keys)):
        raise unreadable("a structure has fields of unknown names")
    return Structure(kind, keys, children, make_named_class(kind, name, keys))
