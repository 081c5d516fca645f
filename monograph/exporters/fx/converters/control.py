"""Control flow: modules whose Python, or TorchScript, decides which region runs."""

from __future__ import annotations

import torch

from monograph.errors import UnsupportedError
from monograph.exporters.fx.emitter import TABLE, FxEmitter, Term
from monograph.frontends.torch.types import dtype_to_torch
from monograph.ir.graph import Node
from monograph.ops.control import If, Scan, While


class IfModule(torch.nn.Module):
    """One of two regions on the operands, as the predicate says."""

    def __init__(self, then: torch.nn.Module, otherwise: torch.nn.Module) -> None:
        super().__init__()
        self.then = then
        self.otherwise = otherwise

    def forward(self, predicate: torch.Tensor, operands: list[torch.Tensor]) -> list[torch.Tensor]:
        """The results of the region that runs."""
        results: list[torch.Tensor] = operands
        if bool(predicate):
            results = self.then(operands)
        else:
            results = self.otherwise(operands)
        return results


class WhileModule(torch.nn.Module):
    """The body on the carries for as long as the condition holds."""

    def __init__(self, condition: torch.nn.Module, body: torch.nn.Module, limit: int) -> None:
        super().__init__()
        self.condition = condition
        self.body = body
        self.limit = limit

    def forward(self, carry: list[torch.Tensor]) -> list[torch.Tensor]:
        """The last carries; an error once there were more than ``limit`` iterations, if any."""
        count = 0
        while bool(self.condition(carry)[0]):
            if self.limit >= 0 and count >= self.limit:
                raise RuntimeError("the loop is still going after its limit of iterations")
            carry = self.body(carry)
            count += 1
        return carry


class ScanModule(torch.nn.Module):
    """The body once for each index, with carries handed on and the other results stacked."""

    def __init__(self, body: torch.nn.Module, carries: int, stacked: int, reverse: bool) -> None:
        super().__init__()
        self.body = body
        self.carries = carries
        self.stacked = stacked
        self.reverse = reverse

    def forward(
        self,
        carry: list[torch.Tensor],
        sequences: list[torch.Tensor],
        constants: list[torch.Tensor],
        empty: list[torch.Tensor],
        length: int,
    ) -> list[torch.Tensor]:
        """The last carries, then the stacks; ``empty`` are those of no step at all."""
        rows: list[list[torch.Tensor]] = []
        for step in range(length):
            index = length - 1 - step if self.reverse else step
            slices = [sequence[index] for sequence in sequences]
            results = self.body(carry + slices + constants)
            carry = results[: self.carries]
            rows.append(results[self.carries :])
        if length == 0:
            return carry + empty
        stacks: list[torch.Tensor] = []
        for position in range(self.stacked):
            parts = [row[position] for row in rows]
            if self.reverse:
                parts.reverse()
            stacks.append(torch.stack(parts))
        return carry + stacks


@TABLE.writes(If)
def _if(emitter: FxEmitter, node: Node, op: If) -> list[Term]:
    predicate, *operands = emitter.operands(node)
    then, otherwise = (emitter.region(region) for region in node.regions)
    made = emitter.submodule("if_", IfModule(then, otherwise), predicate, operands)
    return emitter.unpack(made, len(node.results))


@TABLE.writes(While)
def _while(emitter: FxEmitter, node: Node, op: While) -> list[Term]:
    condition, body = (emitter.region(region) for region in node.regions)
    limit = -1 if op.limit is None else op.limit
    module = WhileModule(condition, body, limit)
    made = emitter.submodule("while_", module, emitter.operands(node))
    return emitter.unpack(made, len(node.results))


@TABLE.writes(Scan)
def _scan(emitter: FxEmitter, node: Node, op: Scan) -> list[Term]:
    carry, sequences, constants = op.split(emitter.operands(node))
    stacked = node.results[op.carries :]
    (region,) = node.regions
    if any(not isinstance(dim, int) for value in stacked for dim in value.shape[1:]):
        raise UnsupportedError("a scan of steps whose results have free sizes is not written in FX")
    empty = [
        emitter.call(torch.zeros, [0, *value.shape[1:]], dtype=dtype_to_torch(value.dtype))
        for value in stacked
    ]
    typed = op.split(node.operands)[1]
    length = op.length if op.length is not None else typed[0].shape[0]
    module = ScanModule(emitter.region(region), op.carries, len(stacked), op.reverse)
    made = emitter.submodule(
        "scan", module, list(carry), list(sequences), list(constants), empty, emitter.size(length)
    )
    return emitter.unpack(made, len(node.results))
