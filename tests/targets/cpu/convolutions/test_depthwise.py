"""What is a convolution of each channel by itself, and what is not."""

from __future__ import annotations

from monograph import functional as F
from monograph.targets.cpu.convolutions.depthwise import as_depthwise
from tests.kernel.build import flat


def test_what_mixes_channels_or_strides_through_them_is_not_one() -> None:
    product = flat(lambda x, w: x @ w, "f32[8, 4]", "f32[4, 8]")
    assert as_depthwise(product) is None
    types = "f32[1, 8, 16, 16]", "f32[8, 1, 3, 3]"
    apart = flat(lambda x, w: F.conv(x, w, stride=3, groups=8), *types)
    assert as_depthwise(apart) is None
