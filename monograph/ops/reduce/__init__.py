"""Reductions: many elements along some axes become one.

``axes`` are always explicit, sorted and non-negative in the graph; the functions take what NumPy
takes (an int, a tuple, None for all). Integers wrap around; narrow floats accumulate in f32 and are
rounded once. A NaN among the elements makes the result NaN.
"""

from monograph.ops.reduce.arithmetic import Prod, Sum, prod, sum, sum_to
from monograph.ops.reduce.base import (
    Reduction,
    as_axes,
    as_float,
    as_number,
    one_value,
    reduce_shape,
    require_number,
    require_ordered,
    spread,
    sum_axes,
)
from monograph.ops.reduce.extremum import Argmax, Argmin, Max, Min, argmax, argmin, max, min
from monograph.ops.reduce.statistics import (
    Logsumexp,
    Mean,
    Variance,
    largest_or_none,
    logsumexp,
    mean,
    std,
    variance,
)
from monograph.ops.reduce.truth import All, Any, all, any, count_nonzero

__all__ = [
    "All",
    "Any",
    "Argmax",
    "Argmin",
    "Logsumexp",
    "Max",
    "Mean",
    "Min",
    "Prod",
    "Reduction",
    "Sum",
    "Variance",
    "all",
    "any",
    "argmax",
    "argmin",
    "as_axes",
    "as_float",
    "as_number",
    "count_nonzero",
    "largest_or_none",
    "logsumexp",
    "max",
    "mean",
    "min",
    "one_value",
    "prod",
    "reduce_shape",
    "require_number",
    "require_ordered",
    "spread",
    "std",
    "sum",
    "sum_axes",
    "sum_to",
    "variance",
]
