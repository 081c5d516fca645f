"""Reading and writing at positions that are themselves data, and ``x[key]``.

Indices are integers of any width. A negative index counts from the end, once; any other index
outside its axis is an ``EvaluationError`` that names it, and nothing is ever clamped. The one
exception is ``scatter_within``, which drops what lies outside.
"""

from monograph.ops.index.dropping import ScatterWithin, scatter_within
from monograph.ops.index.lookup import Embedding, Nonzero, OneHot, embedding, nonzero, one_hot
from monograph.ops.index.reading import Gather, Take, TakeAlongAxis, gather, take, take_along_axis
from monograph.ops.index.subscript import getitem
from monograph.ops.index.writing import PutAlongAxis, Scatter, put_along_axis, scatter

__all__ = [
    "Embedding",
    "Gather",
    "Nonzero",
    "OneHot",
    "PutAlongAxis",
    "Scatter",
    "ScatterWithin",
    "Take",
    "TakeAlongAxis",
    "embedding",
    "gather",
    "getitem",
    "nonzero",
    "one_hot",
    "put_along_axis",
    "scatter",
    "scatter_within",
    "take",
    "take_along_axis",
]
