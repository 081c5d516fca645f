from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monograph.errors import InputError, PassError
from monograph.program.arena import ArenaPlan, Request, plan, readable, report, verify

KIB, MIB = 1 << 10, 1 << 20


def lines(*lives: tuple[int, int, int]) -> list[Request]:
    """Requests of (size in lines of 64 bytes, first, last)."""
    return [
        Request(f"r{index}", 64 * size, first, last)
        for index, (size, first, last) in enumerate(lives)
    ]


# --- Programs as compilers make them -------------------------------------------------------------


class Program:
    """Steps that each write one value, from values of earlier steps."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def step(self, name: str, size: int, *operands: int, in_place: bool = False) -> int:
        step = len(self.requests)
        for index in operands:
            self.requests[index] = replace(self.requests[index], last=step)
        shared = operands if in_place else ()
        self.requests.append(Request(name, size, step, step, may_share=shared))
        return step


def chain(length: int = 50) -> list[Request]:
    program = Program()
    value = program.step("x", MIB)
    for index in range(length):
        value = program.step(f"pointwise {index}", MIB >> index // 10, value, in_place=True)
    return program.requests


def residual_network() -> list[Request]:
    program = Program()
    value = program.step("stem", 64 * 112 * 112 * 4)
    value = program.step("pool", 64 * 56 * 56 * 4, value)
    for width, side, blocks in [(64, 56, 3), (128, 28, 4), (256, 14, 6), (512, 7, 3)]:
        for block in range(blocks):
            scale = 2 if block == 0 and width > 64 else 1
            inner = program.step("conv 1", width * (side * scale) ** 2 * 4, value)
            inner = program.step("conv 2", width * side**2 * 4, inner)
            inner = program.step("conv 3", 4 * width * side**2 * 4, inner)
            if block == 0:
                value = program.step("shortcut", 4 * width * side**2 * 4, value)
            value = program.step("add", 4 * width * side**2 * 4, inner, value, in_place=True)
    program.step("logits", 4000, value)
    return program.requests


def u_net(depth: int = 5) -> list[Request]:
    program = Program()
    value = program.step("image", 3 * 256 * 256 * 4)
    skips = []
    for level in range(depth):
        size = (64 << level) * (256 >> level) ** 2 * 4
        value = program.step("down 1", size, value)
        value = program.step("down 2", size, value)
        skips.append((value, size))
        value = program.step("pool", size // 4, value)
    for skip, size in reversed(skips):
        value = program.step("up", size, value)
        value = program.step("concatenate", 2 * size, value, skip)
        value = program.step("conv", size, value)
        value = program.step("relu", size, value, in_place=True)
    program.step("mask", 256 * 256 * 4, value)
    return program.requests


def transformer(layers: int = 12, tokens: int = 128) -> list[Request]:
    program = Program()
    row, scores = tokens * 768 * 4, 12 * tokens * tokens * 4
    value = program.step("embedding", row)
    mask = program.step("mask", tokens * tokens * 4)
    for _ in range(layers):
        norm = program.step("norm", row, value)
        query, key, content = (program.step(name, row, norm) for name in ("q", "k", "v"))
        weights = program.step("scores", scores, query, key)
        weights = program.step("softmax", scores, weights, mask, in_place=True)
        heads = program.step("attend", row, weights, content)
        value = program.step("residual", row, value, program.step("out", row, heads), in_place=True)
        norm = program.step("norm", row, value)
        hidden = program.step("up", 4 * row, norm)
        hidden = program.step("gelu", 4 * row, hidden, in_place=True)
        value = program.step(
            "residual", row, value, program.step("down", row, hidden), in_place=True
        )
    program.step("logits", tokens * 30522 * 4, value)
    return program.requests


def training(layers: int = 40) -> list[Request]:
    chance = random.Random(3)
    program = Program()
    kept = [program.step("x", MIB)]
    for _ in range(layers):
        kept.append(program.step("forward", 256 * KIB * chance.randint(1, 4), kept[-1]))
    gradient = program.step("loss", 64, kept[-1])
    for value in reversed(kept):
        program.step("weight gradient", 64 * KIB * chance.randint(1, 3), gradient, value)
        size = program.requests[value].size
        gradient = program.step("gradient", size, gradient, value, in_place=True)
    return program.requests


def densely_connected(layers: int = 24) -> list[Request]:
    program = Program()
    pixels = 56 * 56 * 4
    features = [program.step("stem", 64 * pixels)]
    for layer in range(layers):
        joined = program.step("concatenate", (64 + 32 * layer) * pixels, *features)
        narrow = program.step("narrow", 128 * pixels, joined)
        features.append(program.step("grow", 32 * pixels, narrow))
    program.step("logits", 4000, *features)
    return program.requests


PROGRAMS: dict[str, Callable[[], list[Request]]] = {
    "chain": chain,
    "residual network": residual_network,
    "U-Net": u_net,
    "transformer": transformer,
    "one token": lambda: transformer(24, 1),
    "training": training,
    "densely connected": densely_connected,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_reach_the_lower_bound(name: str) -> None:
    requests = PROGRAMS[name]()
    result = plan(requests)
    verify(result, requests)
    assert result.peak == result.lower_bound
    assert result.peak < 0.65 * result.requested


def random_requests(
    count: int, seed: int, longest: int, even: bool = False, sharing: bool = False
) -> list[Request]:
    """Lives that begin anywhere; sizes of a few kinds, or from 64 bytes to a MiB."""
    chance = random.Random(seed)
    requests = []
    for index in range(count):
        first = chance.randrange(count)
        last = min(count - 1, first + chance.randrange(longest))
        size = 64 * chance.choice([1, 2, 3, 4, 6, 8]) if even else int(2 ** chance.uniform(6, 20))
        requests.append(Request(f"r{index}", size, first, last))
    if not sharing:
        return requests
    dying = defaultdict(list)
    for index, request in enumerate(requests):
        dying[request.last].append(index)
    return [
        replace(request, may_share=tuple(dying[request.first]) if chance.random() < 0.5 else ())
        for request in requests
    ]


RANDOM_KINDS: dict[str, Callable[[int], list[Request]]] = {
    "long lives": lambda seed: random_requests(20, seed, 20),
    "short lives": lambda seed: random_requests(40, seed, 8),
    "few sizes": lambda seed: random_requests(30, seed, 30, even=True),
    "sharing": lambda seed: random_requests(40, seed, 12, even=True, sharing=True),
    "many": lambda seed: random_requests(120, seed, 12, sharing=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", RANDOM_KINDS)
def test_random_programs_are_close_to_the_lower_bound(kind: str) -> None:
    distances = []
    for seed in range(200):
        requests = RANDOM_KINDS[kind](seed)
        result = plan(requests)
        verify(result, requests)
        distances.append(result.distance)
    assert sum(distances) / len(distances) < 0.002
    assert sum(distance == 0 for distance in distances) >= 195
    assert max(distances) < 0.05


# --- Known answers -------------------------------------------------------------------------------

OPTIMAL: dict[str, tuple[list[Request], int]] = {
    "nothing": ([], 0),
    "one": (lines((3, 0, 0)), 3),
    "two at once": (lines((3, 0, 1), (2, 1, 2)), 5),
    "two in turn": (lines((3, 0, 1), (2, 2, 3)), 3),
    "ping-pong": (lines(*((1, step, step + 1) for step in range(20))), 2),
    "pyramid": (lines((4, 3, 4), (3, 2, 5), (2, 1, 6), (1, 0, 7)), 10),
    "a skip over small ones": (lines((4, 0, 9), (2, 1, 2), (2, 2, 3), (6, 4, 5)), 10),
    "placing by time splits the gap": (lines((2, 0, 1), (1, 0, 3), (2, 0, 2), (4, 2, 4)), 7),
    "empty requests": (lines((0, 0, 9), (1, 0, 1), (0, 1, 1)), 1),
}


@pytest.mark.parametrize("name", OPTIMAL)
def test_known_optimum(name: str) -> None:
    requests, best = OPTIMAL[name]
    result = plan(requests)
    verify(result, requests)
    assert result.peak == 64 * best


def best_by_brute_force(requests: list[Request]) -> int:
    """The lowest peak over all orders of placing each request in its lowest gap."""
    best = sum(request.size for request in requests)
    for order in permutations(range(len(requests))):
        placed: list[tuple[int, Request]] = []
        for index in order:
            request = requests[index]
            beside = sorted(
                (offset, offset + other.size)
                for offset, other in placed
                if other.first <= request.last and other.last >= request.first
            )
            offset = 0
            for low, high in beside:
                if offset + request.size <= low:
                    break
                offset = max(offset, high)
            placed.append((offset, request))
        best = min(best, max(offset + request.size for offset, request in placed))
    return best


def test_few_requests_are_packed_as_low_as_can_be() -> None:
    for seed in range(60):
        requests = random_requests(6, seed, 4, even=True)
        result = plan(requests)
        assert result.peak == best_by_brute_force(requests)


# --- Properties ----------------------------------------------------------------------------------


@st.composite
def programs(draw: st.DrawFn) -> list[Request]:
    """Any valid requests: empty ones, views of views, and permissions to share, wise or not."""
    count = draw(st.integers(0, 25))
    requests: list[Request] = []
    for index in range(count):
        first = draw(st.integers(0, 12))
        last = first + draw(st.integers(0, 6))
        size = draw(st.sampled_from([0, 1, 64, 65, 100, 256, 1000, 4096]))
        if index and draw(st.integers(0, 5)) == 0:
            owner = draw(st.integers(0, index - 1))
            offset = draw(st.integers(0, requests[owner].size))
            size = min(size, requests[owner].size - offset)
            requests.append(Request(f"v{index}", size, first, last, owner, offset))
            continue
        others = st.integers(0, count - 1)
        shared = tuple(draw(st.lists(others, max_size=4, unique=True)))
        requests.append(Request(f"r{index}", size, first, last, may_share=shared))
    return requests


def alive_in(requests: list[Request], result: ArenaPlan, step: int) -> list[tuple[int, int, int]]:
    """(offset, end, index) of every request alive in a step, views included."""
    return [
        (result.offsets[index], result.offsets[index] + request.size, index)
        for index, request in enumerate(requests)
        if request.first <= step <= request.last and request.size
    ]


def owner_of(requests: list[Request], index: int) -> int:
    while (owner := requests[index].alias_of) is not None:
        index = owner
    return index


@settings(max_examples=150, deadline=None)
@given(programs())
def test_plans_are_valid_deterministic_and_above_the_bound(requests: list[Request]) -> None:
    result = plan(requests)
    verify(result, requests)
    assert plan(requests) == result
    assert result.lower_bound <= result.peak <= result.requested
    assert all(
        offset % 64 == 0
        for offset, request in zip(result.offsets, requests, strict=True)
        if request.alias_of is None
    )
    for step in range(20):
        alive = alive_in(requests, result, step)
        for begin, end, index in alive:
            assert end <= result.peak
            for other_begin, other_end, other in alive:
                one, two = owner_of(requests, index), owner_of(requests, other)
                in_place = result.taken_over[one] == two or result.taken_over[two] == one
                if one != two and not in_place:
                    assert end <= other_begin or other_end <= begin


@settings(max_examples=100, deadline=None)
@given(programs(), st.integers(0, 2000))
def test_more_effort_is_never_worse(requests: list[Request], effort: int) -> None:
    quick, thorough = plan(requests, effort=effort), plan(requests)
    verify(quick, requests)
    assert thorough.peak <= quick.peak


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6))
def test_crowds_are_packed_validly(seed: int) -> None:
    requests = random_requests(60, seed, 40, sharing=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("monograph.program.arena_packing.MAX_PAIRS_SEARCHED", 0)
        result = plan(requests)
    verify(result, requests)
    assert result.peak <= 1.5 * result.lower_bound


# --- Views and sharing ---------------------------------------------------------------------------


def test_a_view_stands_in_its_owner_and_keeps_it_alive() -> None:
    requests = [
        Request("x", 256, 0, 1),
        Request("view", 64, 1, 5, alias_of=0, alias_offset=128),
        Request("view of the view", 16, 2, 6, alias_of=1, alias_offset=32),
        Request("y", 256, 6, 7),
    ]
    result = plan(requests)
    verify(result, requests)
    assert result.offsets[1] == result.offsets[0] + 128
    assert result.offsets[2] == result.offsets[0] + 160
    assert result.peak == 512
    assert result.requested == 512


def test_a_long_chain_of_views_stands_in_its_owner() -> None:
    owners = [None, *range(5000)]
    requests = [
        Request(f"r{index}", 64, index, index, alias_of=owner) for index, owner in enumerate(owners)
    ]
    for order in (requests, turned_round(requests)):
        result = plan(order)
        verify(result, order)
        assert result.peak == 64 and set(result.offsets) == {0}


def turned_round(requests: list[Request]) -> list[Request]:
    last = len(requests) - 1
    return [
        replace(request, alias_of=None if request.alias_of is None else last - request.alias_of)
        for request in reversed(requests)
    ]


def test_a_chain_of_pointwise_steps_needs_one_buffer() -> None:
    requests = [
        Request(f"r{index}", KIB, index, index + 1, may_share=(index - 1,) if index else ())
        for index in range(10)
    ]
    result = plan(requests)
    verify(result, requests)
    assert result.peak == result.lower_bound == KIB
    assert result.taken_over == (None, *range(9))


def test_a_smaller_result_frees_the_rest_of_what_it_took_over() -> None:
    requests = [
        Request("x", 512, 0, 1),
        Request("halved", 256, 1, 3, may_share=(0,)),
        Request("y", 256, 2, 3),
    ]
    result = plan(requests)
    verify(result, requests)
    assert result.peak == 512
    assert result.taken_over == (None, 0, None)


def test_nothing_is_written_over_a_value_that_lives_on() -> None:
    requests = [Request("x", 64, 0, 2), Request("y", 64, 1, 2, may_share=(0,))]
    result = plan(requests)
    assert result.taken_over == (None, None) and result.peak == 128


def test_nothing_is_written_over_a_value_whose_view_lives_on() -> None:
    requests = [
        Request("x", 64, 0, 1),
        Request("view", 64, 0, 3, alias_of=0),
        Request("y", 64, 1, 2, may_share=(0,)),
    ]
    assert plan(requests).taken_over == (None, None, None)


def test_a_result_may_be_written_over_the_whole_of_a_view() -> None:
    requests = [
        Request("x", 64, 0, 0),
        Request("reshaped", 64, 0, 1, alias_of=0),
        Request("y", 64, 1, 2, may_share=(1,)),
    ]
    result = plan(requests)
    verify(result, requests)
    assert result.taken_over == (None, None, 0) and result.peak == 64


def test_nothing_is_written_over_a_part_of_a_value() -> None:
    requests = [
        Request("x", 128, 0, 0),
        Request("upper half", 64, 0, 1, alias_of=0, alias_offset=64),
        Request("y", 64, 1, 2, may_share=(1,)),
    ]
    assert plan(requests).taken_over == (None, None, None)


def test_a_larger_result_is_not_written_over_a_smaller_value() -> None:
    requests = [Request("x", 64, 0, 1), Request("y", 128, 1, 2, may_share=(0,))]
    assert plan(requests).taken_over == (None, None)


def test_two_results_of_a_step_share_out_its_operands() -> None:
    """The large result takes the large operand though the small one asked for it too."""
    requests = [
        Request("large", 512, 0, 1),
        Request("small", 128, 0, 1),
        Request("first result", 128, 1, 2, may_share=(0, 1)),
        Request("second result", 512, 1, 2, may_share=(0,)),
    ]
    result = plan(requests)
    verify(result, requests)
    assert result.taken_over == (None, None, 1, 0)
    assert result.peak == result.lower_bound == 640


def test_takers_move_over_so_that_one_more_is_served() -> None:
    requests = [
        Request("a", 64, 0, 1),
        Request("b", 128, 0, 1),
        Request("p", 64, 1, 2, may_share=(0, 1)),
        Request("q", 64, 1, 2, may_share=(0,)),
    ]
    result = plan(requests)
    verify(result, requests)
    assert result.taken_over == (None, None, 1, 0)


# --- What is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([Request("x", -1, 0, 0)], "x has a negative size"),
        ([Request("x", 1, 3, 2)], "x is read before it is written"),
        ([Request("x", 1, 0, 0, may_share=(1,))], "x names a request that does not exist"),
        ([Request("x", 1, 0, 0, alias_of=-1)], "x names a request that does not exist"),
        ([Request("x", 1, 0, 0, alias_of=0)], "x is a view of itself"),
        (
            [Request("x", 1, 0, 0, alias_of=1), Request("y", 1, 0, 0, alias_of=0)],
            "x is a view of itself",
        ),
        ([Request("x", 1, 0, 0), Request("y", 2, 0, 0, alias_of=0)], "y does not fit in x"),
    ],
)
def test_bad_requests_are_refused(requests: list[Request], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan(requests)


def test_verify_finds_an_overlap() -> None:
    requests = lines((2, 0, 2), (2, 1, 3), (2, 3, 4))
    good = plan(requests)
    verify(good, requests)
    for offset in (0, 64):
        bad = replace(good, offsets=(0, offset, 0))
        with pytest.raises(PassError, match="r1 overlaps r0 in step 1"):
            verify(bad, requests)


def test_verify_finds_a_box_hidden_inside_another() -> None:
    requests = lines((9, 0, 5), (1, 1, 2), (1, 2, 3))
    good = plan(requests)
    with pytest.raises(PassError, match="overlaps"):
        verify(replace(good, offsets=(0, 9 * 64, 5 * 64)), requests)


@pytest.mark.parametrize("offset", [-64, 32, 64 * 100])
def test_verify_finds_a_wrong_offset(offset: int) -> None:
    requests = lines((1, 0, 0))
    with pytest.raises(PassError, match="wrong offset"):
        verify(replace(plan(requests), offsets=(offset,)), requests)


def test_verify_finds_sharing_that_was_not_allowed() -> None:
    requests = lines((1, 0, 1), (1, 1, 2))
    with pytest.raises(PassError, match="r1 may not be written over r0"):
        verify(replace(plan(requests), offsets=(0, 0), taken_over=(None, 0)), requests)


def test_verify_finds_a_storage_taken_over_twice() -> None:
    requests = [
        Request("x", 64, 0, 1),
        Request("y", 64, 1, 2, may_share=(0,)),
        Request("z", 64, 1, 2, may_share=(0,)),
    ]
    bad = replace(plan(requests), offsets=(0, 0, 0), taken_over=(None, 0, 0))
    with pytest.raises(PassError, match="taken over twice"):
        verify(bad, requests)


def test_verify_finds_a_view_outside_its_owner() -> None:
    requests = [Request("x", 128, 0, 1), Request("view", 64, 0, 1, alias_of=0)]
    with pytest.raises(PassError, match="view does not stand in x"):
        verify(replace(plan(requests), offsets=(0, 64)), requests)


def test_verify_finds_a_plan_for_other_requests() -> None:
    with pytest.raises(PassError, match="other requests"):
        verify(plan(lines((1, 0, 0))), lines((2, 0, 0)))


# --- Size and speed ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "requests",
    [
        transformer(800),
        random_requests(10_000, 1, 10),
        random_requests(10_000, 1, 60, sharing=True),
        random_requests(10_000, 1, 10_000),
        training(3_000),
    ],
    ids=["transformer", "short lives", "sharing", "long lives", "training"],
)
def test_ten_thousand_requests_are_planned_within_seconds(requests: list[Request]) -> None:
    """Under a second where nothing else runs; the limit leaves room for a busy machine."""
    start = time.process_time()
    result = plan(requests)
    assert time.process_time() - start < 4
    verify(result, requests)
    assert result.distance < 0.10


# --- The report ----------------------------------------------------------------------------------


def test_report_shows_figures_picture_and_legend() -> None:
    requests = [
        Request("x", 64, 0, 1),
        Request("y", 64, 1, 2),
        Request("z", 64, 2, 4),
        Request("w", 64, 1, 4),
        Request("v", 64, 4, 4, may_share=(2,)),
    ]
    assert report(plan(requests)).splitlines() == [
        "arena of 192 B for 5 requests (1 in place, 0 views)",
        "  without reuse         320 B",
        "  planned               192 B   60.0% of that",
        "  lower bound           192 B  reached",
        "",
        "        128 B |······dddddddddddddddddddddddd",
        "         64 B |······bbbbbbbbbbbb············",
        "          0 B |aaaaaaaaaaaacccccccccccceeeeee",
        "              step 0                       4",
        "",
        "  a  x                                64 B  steps 0–1",
        "  b  y                                64 B  steps 1–2",
        "  c  z                                64 B  steps 2–4",
        "  d  w                                64 B  steps 1–4",
        "  e  v                                64 B  steps 4–4, over z",
    ]


@pytest.mark.parametrize("name", PROGRAMS)
def test_report_fits_a_terminal(name: str) -> None:
    text = report(plan(PROGRAMS[name]()))
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) <= 40


def test_report_of_nothing() -> None:
    assert "arena of 0 B for 0 requests" in report(plan([]))


def test_report_says_how_far_the_plan_is_from_the_bound() -> None:
    result = replace(plan(lines((4, 0, 1))), lower_bound=128)
    assert "the plan is 100.0% above" in report(result)


def test_report_shortens_long_names() -> None:
    text = report(plan([Request("name" * 100, 64, 0, 1), Request("y", 64, 1, 2, may_share=(0,))]))
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.50 KiB"), (MIB, "1.00 MiB"), (1 << 40, "1.00 TiB")],
)
def test_readable(size: int, text: str) -> None:
    assert readable(size) == text
