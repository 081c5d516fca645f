"""Random programs, compiled every way and compared; and the fuzzer itself."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor
from torch.nn import functional

from tests.fuzz import check as fuzz_check
from tests.fuzz import layers, pointwise, reductions, views
from tests.fuzz.check import Case, Verdict, check, draw_case
from tests.fuzz.definitions import Definitions
from tests.fuzz.oracle import Answers, judge, nudge, rounding_by_use
from tests.fuzz.programs import Model, Program, Statement
from tests.fuzz.report import as_python, bucket, table
from tests.fuzz.routes import Mode
from tests.fuzz.scope import Drawn, Scope
from tests.fuzz.shrink import shrink
from tests.fuzz.values import CONTENTS, DTYPES, LAYOUTS, Source, make
from tests.fuzz.workers import Outcome

ROOT = Path(__file__).parents[2]
PROGRAMS = 150
"""How many programs one test runs: starting the fuzzer takes as long as a dozen of them."""


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own: the fuzzer forks, which a process with threads must not."""
    command = [sys.executable, "-W", "ignore", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=dict(os.environ))


@pytest.mark.parametrize("seed", [0, 1000])
def test_random_programs_are_compiled_right(seed: int) -> None:
    arguments = ("--seed", str(seed), "--programs", str(PROGRAMS), "--jobs", "1")
    ended = run_python("-m", "tests.fuzz", *arguments, "--shrink", "60", "--shrink-minutes", "3")
    print(ended.stdout)
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr[-3000:]}"


def test_a_seed_always_draws_the_same_program() -> None:
    for seed in range(40):
        assert draw_case(seed) == draw_case(seed)


def test_seeds_draw_different_programs() -> None:
    assert len({draw_case(seed).program.source() for seed in range(40)}) > 35


def test_a_case_survives_being_written_down() -> None:
    for seed in range(40):
        case = draw_case(seed)
        assert Case.from_json(case.to_json()) == case


def test_a_printed_program_gives_the_same_results() -> None:
    for seed in range(30):
        program = draw_case(seed).program
        text = "\n".join(f"{each.name} = {each.expression()}" for each in program.sources)
        namespace: dict[str, Any] = {
            "torch": torch,
            "F": functional,
            "make": make,
            "Source": Source,
        }
        exec(f"{text}\n{program.source()}", namespace)
        with torch.no_grad():
            printed = namespace["model"](*(namespace[each.name] for each in program.inputs))
            built = program.build(program.weights())(*program.arguments())
        for left, right in zip(printed, built, strict=True):
            torch.testing.assert_close(left, right, rtol=0, atol=0, equal_nan=True)


def every_statement() -> list[str]:
    """The statements of one or two values that the tables hold."""
    modules = (pointwise, views, reductions, layers)
    tables = [value for module in modules for name, value in vars(module).items() if name.isupper()]
    tables += layers.POOLS.values()
    listed = [table for table in tables if isinstance(table, (tuple, frozenset))]
    flat = [text for table in listed for text in table if isinstance(text, str) and "{0}" in text]
    return sorted({text.replace("%d", "-1") for text in flat})


def test_every_statement_of_the_tables_is_valid_for_some_value() -> None:
    shapes = ((6,), (3, 3), (6, 6), (6, 6, 6), (2, 4, 8, 8))
    dtypes = ("float32", "int64", "bool", "complex64")
    for text in every_statement():
        scope = Scope(Random(0), "float32")
        assert any(
            scope.attempt(Drawn(text, (name, name, name)))
            for shape in shapes
            for dtype in dtypes
            for name in [scope.add_source(shape, dtype, contents="positive")]
        ), text


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_source_has_its_shape_whatever_its_layout(layout: str) -> None:
    for shape in ((), (0,), (1,), (5,), (2, 0), (3, 5), (2, 3, 4)):
        for dtype in DTYPES:
            for contents in CONTENTS:
                made = make(Source("x", shape, dtype, layout, contents, bound=3))
                assert tuple(made.shape) == shape and made.dtype == getattr(torch, dtype)


def test_a_source_is_the_same_whatever_dtype_torch_makes_by_default() -> None:
    """The reference is computed with float64 as the default, from the same inputs and weights."""
    for dtype in DTYPES:
        for contents in CONTENTS:
            source = Source("x", (3, 5), dtype, contents=contents, bound=3)
            before = make(source)
            torch.set_default_dtype(torch.float64)
            try:
                after = make(source)
            finally:
                torch.set_default_dtype(torch.float32)
            torch.testing.assert_close(before, after, rtol=0, atol=0, equal_nan=True)


def planted(broken_op: str) -> Any:
    """A compiler that is right but for one op, whose results it doubles from the third on."""

    def compile_case(program: Program, mode: Mode, threads: int = 1) -> Model:
        broken = {each.result for each in program.statements if broken_op in each.text}

        def watch(name: str, value: Tensor) -> Tensor:
            if name not in broken or value.numel() < 3:
                return value
            flat = value.clone().flatten()
            flat[2:] *= 2
            return flat.view(value.shape)

        return program.build(program.weights(), watch=watch)

    return compile_case


def test_a_planted_fault_is_found_and_made_small() -> None:
    compile_case = planted("softmax")
    found = next(
        case
        for case in map(draw_case, itertools.count())
        if len(case.program.statements) >= 7
        and "softmax" in case.program.source()
        and check(case, compile_case).status == "mismatch"
    )
    small = shrink(found, lambda case: check(case, compile_case).status == "mismatch")
    assert len(small.program.statements) <= 6
    assert "softmax" in small.program.source()
    assert bucket(small, check(small, compile_case)).startswith("mismatch")
    compile(as_python(small, check(small, compile_case), [1]), "<finding>", "exec")


def test_what_is_not_broken_is_right() -> None:
    verdicts = [check(draw_case(seed), planted("no such op")).status for seed in range(25)]
    assert set(verdicts) <= {"right", "invalid"}


CRASHES = """
import os, signal
from tests.fuzz import check, workers
def crash(case, compile_case):
    compile_case(case.program, case.mode)
    os.kill(os.getpid(), signal.SIGSEGV)
def hang(case, compile_case):
    while True:
        pass
def fail(case, compile_case):
    raise LookupError("a fault of the fuzzer")
def crash_early(case, compile_case):
    with open("{attempts}", "a") as file:
        file.write("begun ")
    os.kill(os.getpid(), signal.SIGABRT)
workers.compiled = lambda program, mode: None
case = check.draw_case(3)
for workers.check in (crash, hang, fail, crash_early):
    outcome = workers.run_case(case, 1)
    assert outcome.case == case
    print(outcome.verdict.status, outcome.verdict.message)
"""


def test_a_crash_an_endless_loop_and_a_fault_end_no_more_than_their_own_case(
    tmp_path: Path,
) -> None:
    attempts = tmp_path / "attempts"
    ended = run_python("-c", CRASHES.replace("{attempts}", str(attempts)))
    assert "crash SIGSEGV" in ended.stdout, ended.stderr
    assert "timeout no answer" in ended.stdout, ended.stderr
    assert "LookupError: a fault of the fuzzer" in ended.stdout, ended.stderr
    assert "torch torch ended the process before anything was compiled: SIGABRT" in ended.stdout
    assert attempts.read_text().split() == ["begun"] * 4


def test_an_error_where_torch_records_a_wrong_shape_is_torch_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def compile_case(program: Program, mode: Mode, threads: int = 1) -> Model:
        raise AssertionError("the shapes do not fit")

    norm = Statement("v0", "{0}.norm(dim=-1)", ("x0",))
    case = Case(Program((Source("x0", (5, 1), "float32"),), (norm,), ("v0",)), Mode())
    assert check(case, compile_case).status == "error"
    exported = fuzz_check._exported

    def misrecorded(program: Program, mode: Mode) -> Model:
        model: Any = exported(program, mode)
        for node in model.graph.nodes:
            if "norm" in str(node.target):
                node.meta["val"] = node.meta["val"].unsqueeze(-1)
        return model

    monkeypatch.setattr(fuzz_check, "_exported", misrecorded)
    verdict = check(case, compile_case)
    assert verdict.status == "torch" and "norm" in verdict.message


VERIFIED = """
import os
from monograph.config import Config
from tests.fuzz import check, workers
workers.check = lambda case, _: check.Verdict(f"verified={Config.from_environment().verify}")
del os.environ["MONOGRAPH_VERIFY"]
print("unset", workers.run_case(check.draw_case(3), 10).verdict.status)
os.environ["MONOGRAPH_VERIFY"] = "0"
print("0", workers.run_case(check.draw_case(3), 10).verdict.status)
"""


def test_random_programs_are_verified_unless_one_says_no() -> None:
    ended = run_python("-c", VERIFIED)
    assert ended.stdout.splitlines() == ["unset verified=True", "0 verified=False"], ended.stderr


def test_the_table_counts_by_dtype_width_registers_and_route() -> None:
    settings = (("MONOGRAPH_VECTOR_BYTES", "64"), ("MONOGRAPH_VECTOR_REGISTERS", "16"))
    program = Program((Source("x0", (2,), "bfloat16"),), (), ("x0",))
    outcomes = [
        Outcome(Case(program, Mode("onnx"), settings), Verdict("right"), 1.0, 0),
        Outcome(Case(program, Mode()), Verdict("crash"), 1.0, 1),
    ]
    rows = {line[:22].strip(): line[22:].split() for line in table(outcomes).splitlines()}
    right, crash = ["1", "1", *"·" * 9], ["1", "·", "·", "1", *"·" * 7]
    assert rows["registers 16"] == rows["vector 64"] == rows["route onnx"] == right
    assert rows["registers own"] == rows["vector own"] == rows["route compile"] == crash
    assert rows["dtype bfloat16"] == rows["total"] == ["2", "1", "·", "1", *"·" * 7]


def answers(eager: Sequence[float], dtype: torch.dtype = torch.float32, **options: bool) -> Answers:
    wide = torch.tensor(eager, dtype=torch.float64)
    return Answers(wide.to(dtype), wide, lambda _: [wide], **options)


@pytest.mark.parametrize(
    ("got", "complaint"),
    [
        ([1.0, 2.0, 0.0, float("nan")], None),
        ([1.0 + 2e-7, 2.0, 0.0, float("nan")], None),
        ([1.0 + 1e-5, 2.0, 0.0, float("nan")], "off by"),
        ([1.0, 2.0, 1e-30, float("nan")], "off by"),
        ([1.0, 2.0, 0.0, 4.0], "NaN or infinity"),
        ([1.0, float("inf"), 0.0, float("nan")], "NaN or infinity"),
        ([1.0, 2.0, -0.0, float("nan")], "sign of zero"),
        ([1.0, 2.0, 0.0], "shape"),
    ],
)
def test_an_answer_is_right_up_to_rounding(got: list[float], complaint: str | None) -> None:
    expected = answers([1.0, 2.0, 0.0, float("nan")], signed_zeros=True)
    found = judge(torch.tensor(got), expected)
    assert (found is None) if complaint is None else (complaint in (found or ""))


@pytest.mark.parametrize(("error", "is_right"), [(4e-16, True), (2e-14, True), (1e-12, False)])
def test_float64_has_no_more_ulp_than_float32(error: float, is_right: bool) -> None:
    """Eager's float32 is 100 ulp away, the reference as wide as the answer."""
    wide = torch.tensor([1.0], dtype=torch.float64)
    single = torch.tensor([1.0 + 100 * 2**-23])
    found = judge(wide + error, Answers(wide, wide, lambda _: [wide], single=lambda: [single]))
    assert (found is None) == is_right
    without = judge(wide + error, Answers(wide, wide, lambda _: [wide]))
    assert (without is None) == (error < 1e-15)


def test_integers_must_be_equal() -> None:
    expected = Answers(torch.tensor([1, 2]), torch.tensor([1, 2]), lambda _: [])
    assert judge(torch.tensor([1, 2]), expected) is None
    assert judge(torch.tensor([1, 3]), expected) is not None


def test_noise_excuses_a_comparison_of_nearly_equal_numbers() -> None:
    """x + 1 > y, where float32 rounds x away: neither answer is the compiler's fault."""
    x = Source("x0", (4,), "float32", contents="whole", seed=1)
    program = Program(
        (x,),
        (
            Statement("v0", "({0} + 1e-8) * 3.0000001", ("x0",)),
            Statement("v1", "{0} > {1} * 3.0000001", ("v0", "x0")),
        ),
        ("v1",),
    )

    def compile_case(program: Program, mode: Mode, threads: int = 1) -> Model:
        return lambda x0: (x0.double() + 1e-8 > x0.double(),)

    assert check(Case(program, Mode()), compile_case).status == "right"


def test_a_sum_that_overflows_may_be_any_that_is_no_number() -> None:
    wide = torch.tensor([-4e71, 1.0], dtype=torch.float64)
    answers = Answers(wide.float(), wide, lambda _: [wide])
    assert judge(torch.tensor([torch.nan, 1.0]), answers) is None
    assert judge(torch.tensor([3.0, 1.0]), answers) is not None
    assert judge(torch.tensor([-torch.inf, torch.nan]), answers) is not None


def test_noise_gives_a_nan_any_sign_and_leaves_that_of_an_input() -> None:
    signs = {
        exact: {
            bool(nudge(torch.tensor(torch.nan), torch.float32, generator, exact).signbit())
            for generator in (torch.Generator().manual_seed(seed) for seed in range(20))
        }
        for exact in (True, False)
    }
    assert signs == {True: {False}, False: {False, True}}


def test_noise_makes_zeros_of_subnormals_for_some() -> None:
    value = torch.tensor([1e-41, 1.0], dtype=torch.float64)
    results = {
        bool(nudge(value, torch.float32, torch.Generator().manual_seed(seed), True)[0] == 0)
        for seed in range(20)
    }
    assert results == {False, True}


def test_values_of_16_bits_are_rounded_for_some_who_read_them() -> None:
    use = rounding_by_use({"v": torch.bfloat16, "w": torch.float32}, 3)
    value = torch.tensor([1.003, 0.5], dtype=torch.float64)
    half = torch.finfo(torch.bfloat16).eps / 2
    errors = {float((use("v", value) - value).abs()[0] / value[0]) for _ in range(20)}
    assert sorted(errors) == [0.0, pytest.approx(half)]
    assert all(use("v", value)[1] == 0.5 for _ in range(20))  # has no digits to lose
    assert all(use("w", value) is value for _ in range(20))


def test_what_a_mask_hides_may_be_taken_into_account_or_not() -> None:
    q = torch.ones(1, 2, 3)
    keys = torch.tensor([[[1.0, 2.0, 3.0], [torch.nan, torch.inf, 0.0]]])
    mask = torch.tensor([[True, False], [False, False]])
    with Definitions():
        attention = torch.nn.functional.scaled_dot_product_attention
        assert attention(q, keys, keys, attn_mask=mask).tolist() == [[[1, 2, 3], [0, 0, 0]]]
    assert bool(attention(q, keys, keys, attn_mask=mask).isnan().all())


def test_definitions_are_those_of_torch_where_nothing_overflows() -> None:
    x = torch.randn(6, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weight = torch.arange(1.0, 5.0, dtype=torch.float64)
    functions: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda x: x.std(1),
        lambda x: x.var((0, -1), keepdim=True),
        lambda x: x.std(),
        lambda x: x.std(1, correction=0),
        lambda x: torch.var(x, 2, False),
        lambda x: torch.nn.functional.layer_norm(x, (5,)),
        lambda x: torch.nn.functional.group_norm(x, 2, weight, weight),
        lambda x: torch.nn.functional.interpolate(x, scale_factor=2, mode="linear"),
        lambda x: torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]),
    ]
    for function in functions:
        with Definitions():
            found = function(x)
        torch.testing.assert_close(found, function(x))
    large = torch.tensor([3e20, -3e20, 0.0])
    with Definitions():
        assert large.std().isinf() and not large.double().std().isinf()
        edge = torch.tensor([torch.inf, -torch.inf, 1.0, torch.nan]).view(1, 4, 1)
        wider = torch.nn.functional.interpolate(edge, scale_factor=2, mode="linear")
        scores = torch.full((1, 1, 2, 3), torch.nan)
        lost = torch.nn.functional.scaled_dot_product_attention(scores, scores, scores)
    torch.testing.assert_close(wider, edge.expand(1, 4, 2), equal_nan=True)
    assert lost.isnan().all()
