"""Layouts: channels lie together around convolutions, and every result stays what it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.ir.interpret import interpret
from monograph.program.code import SlotKind
from monograph.runtime.compiled import Executable
from monograph.targets.cpu.build import Program
from monograph.targets.cpu.machine import host

Array = np.ndarray[Any, Any]


def draw(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def weights(*shape: int) -> Array:
    return draw(*shape) / np.float32(np.sqrt(np.prod(shape[1:])))


def compiled(function: Any, *types: str) -> tuple[Any, Executable]:
    graph = monograph.trace(function, *types)
    return graph, compile_graph(graph, Options(cache=False))


def program_of(executable: Executable) -> Program:
    assert executable.program is not None
    return executable.program


def check(function: Any, *types: str, inputs: list[Array]) -> Program:
    """Compile, and compare every output with the interpreter's."""
    graph, executable = compiled(function, *types)
    compare(graph, executable, inputs)
    return program_of(executable)


def compare(graph: Any, executable: Executable, inputs: list[Array]) -> None:
    expected = interpret(graph, inputs)
    for got, want in zip(executable.run(inputs), expected, strict=True):
        assert got.shape == want.shape
        scale = np.abs(want).max() if want.size else 1.0
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * float(scale))


W3 = weights(16, 8, 3, 3)
W1 = weights(12, 16, 1, 1)
WN = weights(8, 8, 3, 3)


def test_channels_lie_together_between_convolutions() -> None:
    def net(x: Any) -> Any:
        return F.conv(F.relu(F.conv(x, W3, padding=1)), W1)

    program = check(net, "f32[2, 8, 9, 10]", inputs=[draw(2, 8, 9, 10)])
    inner = [s for s in program.slots if s.kind is SlotKind.ARENA and s.shape == (2, 16, 9, 10)]
    assert [slot.strides for slot in inner] == [(1440, 1, 160, 16)]


def test_a_graph_without_convolutions_is_row_major() -> None:
    def net(x: Any) -> Any:
        return F.exp(F.max_pool(x, 2)) + 1

    program = check(net, "f32[1, 8, 8, 8]", inputs=[draw(1, 8, 8, 8)])
    assert all(slot.strides is None and slot.span is None for slot in program.slots)
    assert program.conversions == ()


def test_only_the_edges_are_converted() -> None:
    def net(x: Any) -> Any:
        for _ in range(4):
            x = F.relu(F.conv(x, WN, padding=1)) + x
        return x

    program = check(net, "f32[1, 8, 12, 12]", inputs=[draw(1, 8, 12, 12)])
    assert program.conversions[0].value == "x"
    assert len(program.conversions) == 2


@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_is_given_a_border_but_not_turned(channels: int) -> None:
    first, second = weights(16, channels, 3, 3), weights(8, 16, 3, 3)

    def net(x: Any) -> Any:
        return F.conv(F.relu(F.conv(x, first, stride=2, padding=1)), second, padding=1)

    x = draw(2, channels, 12, 10)
    program = check(net, f"f32[2, {channels}, 12, 10]", inputs=[x])
    (copy,) = [b for b in program.kernels if b.name.endswith("convert") and "k0" in b.name]
    (buffer,) = copy.nest.outputs
    assert "o0[i3+" in str(copy.nest), f"columns stay next to each other in {buffer.name}"


def test_a_picture_without_padding_is_read_where_it_lies() -> None:
    first, second = weights(16, 3, 4, 4), weights(8, 16, 3, 3)

    def net(x: Any) -> Any:
        return F.conv(F.relu(F.conv(x, first, stride=4)), second, padding=1)

    program = check(net, "f32[1, 3, 16, 24]", inputs=[draw(1, 3, 16, 24)])
    assert all("read by" not in each.purpose for each in program.conversions)


def test_a_border_is_as_wide_as_the_widest_window_that_reads_it() -> None:
    wide = weights(8, 8, 7, 5)

    def net(x: Any) -> Any:
        y = F.relu(F.conv(x, WN, padding=1))
        return F.conv(y, WN, padding=1) + F.conv(y, wide, padding=((3, 3), (2, 2)))

    check(net, "f32[2, 8, 6, 9]", inputs=[draw(2, 8, 6, 9)])


def test_padding_may_differ_on_either_side() -> None:
    def net(x: Any) -> Any:
        return F.conv(F.conv(x, WN, padding=((2, 0), (0, 1))), WN, padding=((0, 1), (3, 0)))

    check(net, "f32[2, 8, 7, 6]", inputs=[draw(2, 8, 7, 6)])


def test_a_value_that_is_also_an_output_is_row_major() -> None:
    def net(x: Any) -> Any:
        y = F.relu(F.conv(x, WN, padding=1))
        return y, F.conv(y, WN, padding=1)

    program = check(net, "f32[1, 8, 6, 6]", inputs=[draw(1, 8, 6, 6)])
    assert all(s.span is None for s in program.slots if s.kind is SlotKind.OUTPUT)


def test_branches_meet_in_a_concatenation() -> None:
    def net(x: Any) -> Any:
        left = F.relu(F.conv(x, WN, padding=1))
        right = F.max_pool(F.conv(x, WN, padding=1), 3, 1, 1)
        return F.conv(F.concat([left, right, left], axis=1), weights(8, 24, 1, 1))

    check(net, "f32[2, 8, 7, 7]", inputs=[draw(2, 8, 7, 7)])


def test_what_is_reshaped_is_a_view_or_a_copy() -> None:
    tokens = weights(6, 16)

    def patches(x: Any) -> Any:
        y = F.conv(x, weights(6, 8, 2, 2), stride=2)
        return F.matmul(F.transpose(F.reshape(y, (2, 6, 12)), (0, 2, 1)), tokens)

    check(patches, "f32[2, 8, 6, 8]", inputs=[draw(2, 8, 6, 8)])

    def flattened(x: Any) -> Any:
        y = F.max_pool(F.relu(F.conv(x, WN)), 2)
        return F.matmul(F.reshape(y, (2, 8 * 2 * 3)), weights(48, 5))

    check(flattened, "f32[2, 8, 6, 8]", inputs=[draw(2, 8, 6, 8)])

    def reshaped_output(x: Any) -> Any:
        return F.reshape(F.conv(x, WN), (2, 8, 24))

    check(reshaped_output, "f32[2, 8, 6, 8]", inputs=[draw(2, 8, 6, 8)])


def test_a_normalisation_of_channels_reads_them_as_they_lie() -> None:
    def net(x: Any) -> Any:
        y = F.transpose(F.conv(x, WN, padding=1), (0, 2, 3, 1))
        y = F.layer_norm(y, np.ones(8, np.float32), np.zeros(8, np.float32))
        return F.conv(F.transpose(y, (0, 3, 1, 2)), WN, padding=1)

    check(net, "f32[2, 8, 5, 7]", inputs=[draw(2, 8, 5, 7)])


def test_channels_that_are_stored_together_are_convolved_together() -> None:
    def turned(x: Any) -> Any:
        return F.transpose(F.conv(x, weights(24, 1, 7, 7), padding=3, groups=24), (0, 2, 3, 1))

    made = check(turned, "f32[2, 24, 12, 16]", inputs=[draw(2, 24, 12, 16)])
    lanes = host().vector_bytes // 4
    assert f"vectorize(i1, {lanes})" in str(made.kernels[0].schedule)
    assert any(kernel.name.endswith("pack_taps") for kernel in made.kernels)


def test_pools_means_and_resizes_follow() -> None:
    def net(x: Any) -> Any:
        y = F.conv(x, WN, padding=1)
        y = F.resize(F.avg_pool(y, 3, 2, 1), (9, 11), axes=(2, 3), mode="linear")
        y = F.conv(F.pad(y, (0, 0, 1, 0), (0, 0, 0, 2)), WN)
        return F.mean(y, (2, 3)), F.max(y, 1)

    check(net, "f32[2, 8, 8, 10]", inputs=[draw(2, 8, 8, 10)])


def test_a_transposed_convolution_follows() -> None:
    def net(x: Any) -> Any:
        y = F.relu(F.conv(x, WN, padding=1))
        return F.conv_transpose(y, weights(8, 5, 3, 3), stride=2, padding=1)

    check(net, "f32[1, 8, 5, 6]", inputs=[draw(1, 8, 5, 6)])


def test_symbolic_batch_and_sizes() -> None:
    def net(x: Any) -> Any:
        y = F.relu(F.conv(x, W3, padding=1))
        y = F.max_pool(F.conv(y, weights(16, 1, 3, 3), padding=1, groups=16) + y, 2)
        return F.conv(y, W1), F.mean(y, (2, 3))

    graph, executable = compiled(net, "f32[n, 8, h, w]")
    for batch, height, width in ((1, 4, 4), (3, 9, 6)):
        compare(graph, executable, [draw(batch, 8, height, width)])


@pytest.mark.parametrize("rank", [1, 3])
def test_other_numbers_of_dimensions(rank: int) -> None:
    weight, sizes = weights(6, 4, *(3,) * rank), (7, 5, 6)[:rank]

    def net(x: Any) -> Any:
        y = F.relu(F.conv(x, weight, padding=1))
        y = F.conv(y, weights(6, 1, *(3,) * rank), padding=2, dilation=2, groups=6)
        return F.conv(y, weights(4, 3, *(2,) * rank), stride=2, groups=2)

    dims = ", ".join(map(str, sizes))
    check(net, f"f32[2, 4, {dims}]", inputs=[draw(2, 4, *sizes)])


def test_control_flow_reads_row_major_values() -> None:
    def net(x: Any, flag: Any) -> Any:
        y = F.relu(F.conv(x, WN, padding=1))
        z = F.cond(flag, lambda v: v + 1, lambda v: F.cumsum(v, 1), y)
        return F.conv(z, WN, padding=1)

    for flag in (True, False):
        inputs = [draw(1, 8, 5, 5), np.array(flag)]
        check(net, "f32[1, 8, 5, 5]", "bool[]", inputs=inputs)


def test_an_empty_batch_has_an_empty_result() -> None:
    def net(x: Any) -> Any:
        return F.conv(F.conv(x, WN, padding=1), WN, padding=1)

    check(net, "f32[0, 8, 5, 5]", inputs=[draw(0, 8, 5, 5)])


def test_half_precision_is_laid_out_alike() -> None:
    def net(x: Any) -> Any:
        y = F.cast(F.conv(x, WN, padding=1), "bf16")
        return F.cast(F.conv(F.relu(y), F.cast(WN, "bf16"), padding=1), "f32")

    graph, executable = compiled(net, "f32[1, 8, 6, 6]")
    x = draw(1, 8, 6, 6)
    (got,), (want,) = executable.run([x]), interpret(graph, [x])
    np.testing.assert_allclose(got, want, atol=0.05)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 1, 4), (1, 1, 1, 1), (2, 3, 5, 5)], ids=str)
def test_a_constant_of_one_number_is_zero_beyond_its_edge(shape: tuple[int, ...]) -> None:
    image = np.full(shape, 0.5, np.float32)
    weight = draw(4, shape[1], *(3 for _ in shape[2:]))
    sizes = ", ".join(map(str, weight.shape))
    check(lambda w: F.conv(image, w, padding=1), f"f32[{sizes}]", inputs=[weight])
