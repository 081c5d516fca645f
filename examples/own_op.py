"""Add an op in one block, and use it to find a sparse solution of a linear system.

Soft thresholding moves a number towards 0 by a fixed amount, and stops there. Repeated between
steps down the slope of ``|a x - b|²``, it finds an ``x`` of which most elements are exactly 0. The
op knows its type rule and basic samples from ``Unary``; the block says the rest.

    python examples/own_op.py
"""

import numpy as np

import monograph
from monograph import functional as F
from monograph.ir.op import Sample, Trait, op
from monograph.ops.elementwise.base import Unary


@op("soft_threshold", traits=Trait.ELEMENTWISE)
class SoftThreshold(Unary):
    """x moved towards 0 by ``amount``; 0 where it is nearer than that."""

    amount: float = 0.5

    def evaluate(self, x):
        return np.sign(x) * np.maximum(np.abs(x) - self.amount, 0)

    def vjp(self, node, grad):
        (x,) = node.operands
        return (F.where(F.abs(x) > self.amount, grad, 0.0),)

    def decompose(self, x):
        return F.sign(x) * F.maximum(F.abs(x) - self.amount, 0.0)

    @classmethod
    def samples(cls):
        yield from super().samples()
        yield Sample(cls(2.0), (np.array([-3.0, -1.0, 1.0, 3.0], np.float32),), "both sides")


def solve(a, b, rate=0.25, penalty=0.02, steps=500):
    def improve(_, x):
        slope = (a @ x - b) @ a
        return SoftThreshold(rate * penalty)(x - rate * slope)

    return F.for_loop(0, steps, improve, F.zeros((a.shape[1],), a.dtype))


generator = np.random.default_rng(3)
truth = np.zeros(40)
truth[[3, 17, 29]] = 1.5, -2.0, 1.0
a = generator.normal(size=(20, 40)) / np.sqrt(20)

graph = monograph.trace(solve, a, "f64[20]")
monograph.verify(graph)
print(graph)
(found,) = monograph.interpret(graph, [a, a @ truth])
kept = np.flatnonzero(found)
print("20 equations, 40 unknowns; not 0 are", {int(i): round(float(found[i]), 1) for i in kept})

# The new op is an op like any other: it lowers, and its gradient comes from the block.
one = monograph.trace(lambda x: F.sum(SoftThreshold(1.0)(x)), "f64[n]")
print(monograph.optimize(one, passes="lower_composites"))
print("gradient:", *monograph.interpret(monograph.grad(one), [np.array([-3.0, -0.5, 0.5, 3.0])]))
