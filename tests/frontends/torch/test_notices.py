"""Gradients that stop at a compiled module, and training mode, are warned about: once, clearly."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import monograph
from monograph.frontends.torch.notices import GradientWarning, TrainingModeWarning

X = torch.arange(8.0).reshape(2, 4)


@pytest.fixture
def shown() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


def of(shown: list[warnings.WarningMessage], kind: type[Warning]) -> list[warnings.WarningMessage]:
    return [each for each in shown if issubclass(each.category, kind)]


class TestGradients:
    def test_those_of_parameters_warn_once(self, shown: Any) -> None:
        compiled = monograph.compile(torch.nn.Linear(4, 2), X)
        with torch.no_grad():
            compiled(X)
        assert not of(shown, GradientWarning)
        for _ in range(3):
            compiled(X)
        (warning,) = of(shown, GradientWarning)
        assert warning.filename == __file__
        assert "torch.no_grad()" in str(warning.message)
        assert 'torch.compile(model, backend="monograph")' in str(warning.message)

    def test_those_of_inputs_warn_once(self, shown: Any) -> None:
        compiled = monograph.compile(lambda x: x * 2, X)
        compiled(X)
        assert not of(shown, GradientWarning)
        needed = X.clone().requires_grad_()
        for _ in range(3):
            assert not compiled(x=needed).requires_grad
        assert len(of(shown, GradientWarning)) == 1

    def test_those_of_nested_inputs_are_seen(self, shown: Any) -> None:
        compiled = monograph.compile(lambda pair: pair["a"] + pair["b"], {"a": X, "b": X})
        compiled({"a": X, "b": X})
        assert not of(shown, GradientWarning)
        compiled({"a": X, "b": X.clone().requires_grad_()})
        assert len(of(shown, GradientWarning)) == 1

    def test_those_of_a_function_s_module_are_seen(self, shown: Any) -> None:
        layer = torch.nn.Linear(4, 2)
        monograph.compile(lambda x: layer(x) * 2, X)(X)
        assert len(of(shown, GradientWarning)) == 1

    def test_frozen_parameters_have_none(self, shown: Any) -> None:
        monograph.compile(torch.nn.Linear(4, 2).requires_grad_(False), X)(X)
        assert not of(shown, GradientWarning)

    def test_loaded_programs_warn_of_inputs(self, shown: Any, tmp_path: Path) -> None:
        compiled = monograph.compile(torch.nn.Linear(4, 2).requires_grad_(False), X)
        loaded = monograph.load(compiled.save(tmp_path / "layer.mono"))
        loaded(X)
        assert not of(shown, GradientWarning)
        for _ in range(2):
            loaded(X.clone().requires_grad_())
        assert len(of(shown, GradientWarning)) == 1


class Custom(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2 if self.training else x


class TestTrainingMode:
    @pytest.mark.parametrize(
        "module",
        [
            torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5)),
            torch.nn.BatchNorm1d(4),
            Custom(),
        ],
    )
    def test_a_module_that_it_matters_to_is_warned_about(self, module: Any, shown: Any) -> None:
        compiled = monograph.compile(module.train(), X)
        (warning,) = of(shown, TrainingModeWarning)
        assert warning.filename == __file__
        assert ".eval()" in str(warning.message)
        assert module.training
        with torch.no_grad():
            torch.testing.assert_close(compiled(X), module.eval()(X))

    @pytest.mark.parametrize(
        "module",
        [
            torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.0)).train(),
            torch.nn.BatchNorm1d(4, track_running_stats=False).train(),
            torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5)).eval(),
            Custom().eval(),
        ],
    )
    def test_others_are_not(self, module: Any, shown: Any) -> None:
        monograph.compile(module, X)
        assert not of(shown, TrainingModeWarning)
