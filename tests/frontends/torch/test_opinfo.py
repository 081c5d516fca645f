"""The OpInfo runner itself, and a few of its ops; ``make conformance`` runs all of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing._internal.opinfo.core import SampleInput

from tests.frontends.torch.opinfo import Options, as_function, copies, label, ops, run_op, trace
from tests.frontends.torch.opinfo_compare import compare, compare_singular_vectors
from tests.frontends.torch.opinfo_draws import random_nodes, with_draws
from tests.frontends.torch.opinfo_known import KNOWN, print_known, unexpected
from tests.frontends.torch.opinfo_report import OpResult, core_ops, print_report

NAMES = [label(op) for op in ops()]
WRONG = [label(op) for op in ops(errors=True)]
PARTS = 4
SAMPLES = 4
"""Samples of an op that the usual run compiles."""
OWN = (
    *("add", "pow", "where", "clamp", "lerp", "frexp", "nextafter", "div.floor_rounding"),
    *("view", "permute", "split", "cat", "diagonal", "as_strided.partial_views", "slice_scatter"),
    *("arange", "linspace", "eye", "nn.functional.gelu", "nn.functional.pad.circular"),
    *("nn.functional.avg_pool2d", "nn.functional.group_norm", "stft", "tensor_split"),
)


@pytest.mark.parametrize("name", OWN)
def test_every_sample_of_an_op_agrees_with_eager(name: str) -> None:
    result = run_op(NAMES.index(name), Options())
    assert result.samples > 0
    assert result.count("agree") == result.samples, result.reasons


@pytest.mark.parametrize("name", ["where", "cumsum", "nn.functional.softplus"])
def test_compiled_samples_agree_with_eager(name: str) -> None:
    result = run_op(NAMES.index(name), Options(target="cpu"))
    assert result.samples > 0
    assert result.count("agree") == result.samples, result.reasons


@pytest.mark.parametrize("part", range(PARTS))
def test_every_sixth_op_agrees_with_eager_compiled(part: int) -> None:
    chosen = range(0, len(NAMES), 6)[part::PARTS]
    results = [run_op(number, Options(target="cpu", limit=SAMPLES)) for number in chosen]
    assert len(results) >= 100 // PARTS
    assert not unexpected(results)


@pytest.mark.parametrize("name", ["cat", "gather", "nn.functional.batch_norm"])
def test_composite_ops_agree_as_export_gives_them(name: str) -> None:
    result = run_op(NAMES.index(name), Options(level="export"))
    assert result.samples > 0
    assert result.passed == result.samples, result.reasons


@pytest.mark.parametrize("name", ["aminmax", "cat", "complex", "index_add", "take", "uniform"])
def test_wrong_inputs_give_errors(name: str) -> None:
    result = run_op(WRONG.index(name), Options(errors=True))
    assert result.samples > 0
    assert result.passed == result.samples, result.reasons


def test_random_ops_are_compared_by_type_alone() -> None:
    result = run_op(NAMES.index("randn"), Options())
    assert result.count("random") == result.samples


def test_what_is_made_of_random_numbers_is_compared_on_those_that_eager_drew() -> None:
    result = run_op(NAMES.index("nn.functional.alpha_dropout"), Options())
    assert result.count("given draws") > 0
    assert result.passed == result.samples, result.reasons


def test_a_graph_is_given_draws_only_if_it_makes_something_of_them() -> None:
    def scaled(x: Any) -> Any:
        return x * torch.rand_like(x)

    x = torch.ones(3)
    module = trace(scaled, [x], "dispatch")
    drawn = with_draws(module, scaled, lambda: copies([x]))
    assert drawn is not None
    assert torch.equal(drawn.draws[0], drawn.expected)
    module = trace(torch.rand_like, [x], "dispatch")
    assert random_nodes(module)
    assert with_draws(module, torch.rand_like, lambda: copies([x])) is None


def test_draws_that_are_not_eager_s_are_refused() -> None:
    x = torch.ones(3)
    module = trace(lambda x: x * torch.rand_like(x), [x], "dispatch")
    assert with_draws(module, lambda x: x + torch.rand_like(x), lambda: copies([x])) is None


def test_the_comparison_finds_what_differs() -> None:
    x = torch.tensor([1.0, float("nan")])
    assert compare(x, x.clone(), None) is None
    assert "shape" in str(compare(x, x[:1], None))
    assert "dtype" in str(compare(x, x.double(), None))
    assert "differs" in str(compare(x, torch.tensor([1.1, float("nan")]), None))
    assert "instead of 1" in str(compare((x, x), x, None))
    assert "not None" in str(compare((x, x), (x, None), None))
    assert "not a tensor" in str(compare(1.0, x, None))
    assert "differs" in str(compare(2, 3, None))
    assert compare(x, torch.zeros(2), None, values=False) is None


def test_an_error_as_large_as_eager_s_own_is_accepted_but_no_larger() -> None:
    exact = torch.tensor([1.0], dtype=torch.float64)
    eager = torch.tensor([1.0 + 1e-3])
    assert compare(torch.tensor([1.0 - 1e-3]), eager, lambda: exact) is None
    assert compare(torch.tensor([1.0 - 3e-3]), eager, lambda: exact) is not None


def test_singular_vectors_are_unique_up_to_a_sign_that_both_sides_share() -> None:
    expected = torch.linalg.svd(torch.arange(6.0).reshape(2, 3) ** 2 + 1)
    u, s, vh = expected
    turned = (u * torch.tensor([-1.0, 1.0]), s, vh * torch.tensor([[-1.0], [1.0], [-1.0]]))
    assert compare(turned, expected, None) is not None
    assert compare_singular_vectors(turned, expected, adjoint=True) is None
    one_side = (turned[0], s, vh)
    assert "product" in str(compare_singular_vectors(one_side, expected, adjoint=True))
    longer = (u, s * 1.01, vh)
    assert "singular values" in str(compare_singular_vectors(longer, expected, adjoint=True))
    skew = (u, s, vh * torch.tensor([[1.0], [1.0], [2.0]]))
    assert "orthonormal" in str(compare_singular_vectors(skew, expected, adjoint=True))


def test_each_tensor_of_a_sample_is_one_input_and_shared_memory_stays_shared() -> None:
    x = torch.ones(2)

    sample = SampleInput([x, torch.zeros(2), x], args=(0,))
    function, tensors = as_function(torch.cat, sample)
    module = trace(function, tensors, "dispatch")
    assert sum(node.op == "placeholder" for node in module.graph.nodes) == 2
    first, second = copies([x, x[1:]])
    first[1] = 5.0
    assert second.item() == 5.0
    assert x[1].item() == 1.0


def test_the_report_has_eighty_columns_and_every_reason(capsys: Any) -> None:
    result = OpResult("nn.functional.a_name_that_is_rather_long_for_a_table")
    result.add("agree")
    result.add("mismatch", "result 0 differs: " + "and so on " * 12)
    result.add_core("add", False)
    print_report([result], everything=False, errors=False)
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert "mismatch               1  50.00 %" in printed
    assert result.name in printed
    assert "add" in core_ops()
    assert "0 of      1   0.00 %" in printed


def test_only_a_failure_that_is_not_known_is_unexpected(capsys: pytest.CaptureFixture[str]) -> None:
    results = [
        OpResult("equal", {"untraceable": 7, "agree": 1}),
        OpResult("allclose", {"untraceable": 25}),
        OpResult("to_sparse", {"mismatch": 1}),
        OpResult("add", {"agree": 4, "random": 1, "refused at run": 1}),
        OpResult("sub", {"crash": 2}),
    ]
    assert unexpected(results) == [
        "allclose: 25 untraceable, 24 known",
        "to_sparse: 1 mismatch, 0 known",
        "sub: 2 crash, 0 known",
    ]
    print_known(results)
    assert "equal: 7 untraceable; 8 were known" in capsys.readouterr().out


def test_every_known_failure_is_of_an_entry() -> None:
    assert set(KNOWN) <= set(NAMES)
