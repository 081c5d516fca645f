"""The text form of graphs: print, parse, save, load."""

from monograph.ir.text.files import load_graph, save_graph
from monograph.ir.text.parser import parse, parse_type
from monograph.ir.text.printer import describe, print_graph, print_node

__all__ = [
    "describe",
    "load_graph",
    "parse",
    "parse_type",
    "print_graph",
    "print_node",
    "save_graph",
]
