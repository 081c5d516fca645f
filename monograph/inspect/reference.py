"""What a graph should answer on some inputs, and how sure that is: answers are judged against it.

The answers in double precision, draws of them with noise on the way, and what indices choose of are
computed when they are first asked for.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from monograph.errors import MonographError
from monograph.inspect.evaluate import Evaluator
from monograph.inspect.precise import (
    NOISE_DRAWS,
    Choices,
    Verdict,
    is_float,
    judge,
    relative_error,
)
from monograph.inspect.selections import choices_of
from monograph.ir.graph import Graph
from monograph.ir.types import Array

MAX_NOISE_SECONDS = 20.0
"""After which no more than the least number of draws is made."""


class Reference:
    """The answers of one graph on one set of inputs."""

    def __init__(
        self, graph: Graph, inputs: Sequence[Any], evaluator: Evaluator | None = None
    ) -> None:
        self._graph = graph
        self._inputs = inputs
        self._evaluator = Evaluator() if evaluator is None else evaluator
        self._drawn: list[list[Any]] = []
        self._choices: dict[int, Choices | None] = {}
        self._later: list[Reference] = []
        self._seconds = 0.0
        self.refusal = ""
        """Why there is no double precision: a graph may look at bits."""

    @cached_property
    def answers(self) -> list[Any] | None:
        """The outputs in double precision."""
        try:
            return self._evaluator.run_wide(self._graph, self._inputs)
        except MonographError as problem:
            self.refusal = problem.message
            return None

    def judge(self, output: int, got: Any, other: Any) -> Verdict:
        """The word for an answer of one output, beside another's."""
        mine, its = np.asarray(got), np.asarray(other)
        if mine.dtype.kind in "OSU":
            word = "exact" if np.array_equal(mine, its) else "wrong"
            return Verdict(word, 0.0, None, None)
        if self.answers is None:
            return judge(mine, its, None)
        exact = np.asarray(self.answers[output])
        choices = self._choices_of(output)
        verdict = judge(mine, its, exact, lambda count: self.draws(output, count), choices)
        for later in self._later if verdict.word == "wrong" else ():
            found = self._judge_specials(later, output, mine, its)
            if found is not None and found.word != "wrong":
                return found
        return verdict

    def mend(self, output: int, answer: Any, own: Any) -> Any:
        """A framework's answer, with the graph's own where only the framework's is no number.

        What overflows in one order of operations need not in another: where a layer norm of large
        numbers is NaN in torch, nothing is learned from it.
        """
        its, mine = np.asarray(answer), np.asarray(own)
        if self.answers is None or its.shape != mine.shape or its.dtype != mine.dtype:
            return answer
        exact = np.asarray(self.answers[output])
        if not is_float(its):
            return answer
        finite = [np.isfinite(each.astype(exact.dtype)) for each in (its, mine, exact)]
        return np.where(~finite[0] & finite[1] & finite[2], mine, its)

    def allow_specials(self, graph: Graph) -> None:
        """Let answers be those of a later form of the graph where either has NaN or an infinity.

        Its passes applied rules that say so of themselves: the logarithm of a softmax that
        underflows is a number, for example.
        """
        self._later.append(Reference(graph, self._inputs, self._evaluator))

    def draws(self, output: int, count: int) -> list[Array]:
        """Answers of one output with noise on the way: so many, or what there is time for."""
        while len(self._drawn) < count:
            if len(self._drawn) >= NOISE_DRAWS and self._seconds > MAX_NOISE_SECONDS:
                break
            started, seed = time.perf_counter(), len(self._drawn)
            self._drawn.append(self._evaluator.run_noisy(self._graph, self._inputs, seed))
            self._seconds += time.perf_counter() - started
        return [np.asarray(each[output]) for each in self._drawn[:count]]

    def spread(self, output: int) -> float:
        """How far noise moves an answer, relative to it."""
        assert self.answers is not None
        exact = np.asarray(self.answers[output])
        return max(relative_error(each, exact) for each in self.draws(output, NOISE_DRAWS))

    def _judge_specials(
        self, later: Reference, output: int, got: Array, other: Array
    ) -> Verdict | None:
        """The word beside a later form's answers where one is no number; None if all are."""
        if self.answers is None or later.answers is None:
            return None
        exact, instead = np.asarray(self.answers[output]), np.asarray(later.answers[output])
        if exact.dtype.kind not in "fc" or instead.shape != exact.shape:
            return None
        numbers = np.isfinite(exact) & np.isfinite(instead)
        if numbers.all():
            return None

        def draws(count: int) -> list[Array]:
            pairs = zip(self.draws(output, count), later.draws(output, count), strict=False)
            return [np.where(numbers, each, its) for each, its in pairs]

        return judge(got, other, np.where(numbers, exact, instead), draws)

    def _choices_of(self, output: int) -> Choices | None:
        if output not in self._choices:
            found = choices_of(self._evaluator, self._graph, self._inputs, output)
            self._choices[output] = found
        return self._choices[output]
