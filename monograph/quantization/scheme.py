"""Schemes: which numbers are stored in which dtype, and how their ranges are chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.ir.types import DType, dtype_of

CALIBRATIONS = ("minmax", "percentile", "entropy", "mse")
WEIGHT_DTYPES = ("i8", "i16", "i4", "f8e4m3fn", "f8e5m2")
ACTIVATION_DTYPES = ("u8", "i8", "u16", "i16", "f8e4m3fn", "f8e5m2")
WEIGHT_BITS = (8, 4, 3)
"""Widths of weights that are stored as integers while activations stay floats."""
STATIC_FIELDS = (
    "weights", "symmetric", "per_channel", "calibration", "bias_correction",
    "elementwise",
)  # fmt: skip
"""What is said of stored activations, and of weights beside them."""
WEIGHT_ONLY_FIELDS = ("weight_bits", "group", "symmetric_weights", "dynamic")
"""What is said of weights that are stored alone."""
DEFAULT_GROUP = 32
"""Weights that share a scale where groups are asked for."""


def _require(holds: bool, what: str, known: tuple[object, ...], found: object) -> None:
    if not holds:
        raise InputError(
            f"{what}: unknown choice", expected=", ".join(map(str, known)), found=repr(found)
        )


@dataclass(frozen=True)
class Scheme:
    """How a model is quantized.

    ``activations`` None quantizes weights alone: ``weight_bits`` wide, each ``group`` of inputs
    with a scale (and a zero point unless ``symmetric_weights``). Otherwise activations are stored
    in a dtype of ``ACTIVATION_DTYPES`` with one scale a tensor, weights in ``weights``.
    """

    activations: str | None = "u8"
    weights: str = "i8"
    symmetric: bool = False
    """Whether the zero point of activations is the middle of the dtype's range."""
    per_channel: bool = True
    """Whether each output channel of a weight has a scale of its own."""
    calibration: str = "minmax"
    percentile: float = 99.99
    """For ``calibration="percentile"``: how many of a hundred numbers lie within the range."""
    bias_correction: bool = False
    """Whether biases make up for the mean error of the rounded weights (needs a profile by
    channel)."""
    elementwise: bool = True
    """Whether sums, products and means may read integers where that moves fewer bytes."""
    weight_bits: int = 8
    group: int | None = None
    symmetric_weights: bool = True
    dynamic: bool = False
    """Whether activations are rounded to eight bits in each call, a group at a time, where weights
    alone are stored: products are then of integers."""
    skip: tuple[str, ...] = ()
    """Layers that stay in float, by the names that the report gives them."""

    def __post_init__(self) -> None:
        _require(self.calibration in CALIBRATIONS, "calibration", CALIBRATIONS, self.calibration)
        _require(self.weights in WEIGHT_DTYPES, "weights", WEIGHT_DTYPES, self.weights)
        known = (*ACTIVATION_DTYPES, None)
        _require(self.activations in known, "activations", known, self.activations)
        _require(self.weight_bits in WEIGHT_BITS, "weight_bits", WEIGHT_BITS, self.weight_bits)
        if type(self.percentile) not in (int, float) or not 50.0 < self.percentile <= 100.0:
            raise InputError(
                "a percentile keeps most of the numbers",
                expected="more than 50, at most 100",
                found=repr(self.percentile),
            )
        if self.group is not None and (type(self.group) is not int or self.group < 2):
            raise InputError(
                "a group is some weights", expected="2 or more, or None", found=repr(self.group)
            )
        if self.dynamic and (self.activations is not None or not _is_word(self)):
            raise InputError(
                "activations are rounded in each call beside weights of 4 or 8 bits in groups",
                expected="activations=None, weight_bits 4 or 8, a group that is a multiple of 8",
                found=f"activations={self.activations!r}, weight_bits={self.weight_bits}, "
                f"group={self.group}",
            )
        if not isinstance(self.skip, tuple):
            raise InputError(
                "skip names layers", expected='a tuple: ("conv_1",)', found=repr(self.skip)
            )
        self._refuse_unused()

    def _refuse_unused(self) -> None:
        """Refuse fields that were set and would change nothing."""
        kind = "weights alone are stored" if self.weight_only else "activations are stored too"
        unused = STATIC_FIELDS if self.weight_only else WEIGHT_ONLY_FIELDS
        if self.calibration != "percentile":
            unused = (*unused, "percentile")
        for name in unused:
            found, usual = getattr(self, name), getattr(Scheme, name)
            if found != usual:
                where = f"calibration={self.calibration!r}" if name == "percentile" else kind
                raise InputError(
                    f"{name} says nothing where {where}",
                    expected=f"{name}={usual!r}, as it is if it is left out",
                    found=f"{name}={found!r}",
                )
        if self.calibration == "entropy" and self.activation_dtype.is_float:
            raise InputError(
                "entropy compares even steps, which floats of eight bits do not have",
                expected="minmax, percentile or mse",
                found=f"activations={self.activations!r}, calibration='entropy'",
            )

    @property
    def weight_only(self) -> bool:
        """Whether activations stay floats."""
        return self.activations is None

    @property
    def activation_dtype(self) -> DType:
        """What activations are stored in."""
        assert self.activations is not None
        return dtype_of(self.activations)

    @property
    def weight_dtype(self) -> DType:
        """What weights are stored in, where activations are quantized too."""
        return dtype_of(self.weights)


def _is_word(scheme: Scheme) -> bool:
    """Whether words of 32 bits hold whole groups of weights."""
    return scheme.weight_bits in (4, 8) and scheme.group is not None and scheme.group % 8 == 0


SCHEMES: Mapping[str, Scheme] = {
    "int8": Scheme(),
    "int8-symmetric": Scheme("i8", symmetric=True),
    "int8-per-tensor": Scheme(per_channel=False),
    "int8-percentile": Scheme(calibration="percentile"),
    "int8-entropy": Scheme(calibration="entropy"),
    "int8-mse": Scheme(calibration="mse"),
    "int16": Scheme("i16", "i16", symmetric=True),
    "f8": Scheme("f8e4m3fn", "f8e4m3fn", symmetric=True),
    "w8": Scheme(None, weight_bits=8),
    "w4": Scheme(None, weight_bits=4, group=DEFAULT_GROUP, symmetric_weights=False),
    "w3": Scheme(None, weight_bits=3, group=DEFAULT_GROUP, symmetric_weights=False),
    "w8a8": Scheme(None, weight_bits=8, group=DEFAULT_GROUP, dynamic=True),
    "w4a8": Scheme(None, weight_bits=4, group=DEFAULT_GROUP, symmetric_weights=False, dynamic=True),
}
"""The usual schemes, by name."""


def scheme_of(scheme: Scheme | str, **changes: object) -> Scheme:
    """A scheme, or the one of that name, with these fields changed."""
    if isinstance(scheme, str):
        _require(scheme in SCHEMES, "scheme", tuple(SCHEMES), scheme)
        scheme = SCHEMES[scheme]
    if not isinstance(scheme, Scheme):
        raise InputError(
            "this is not a scheme",
            expected="a Scheme, or one of " + ", ".join(SCHEMES),
            found=repr(scheme),
        )
    return replace(scheme, **changes) if changes else scheme  # type: ignore[arg-type]
