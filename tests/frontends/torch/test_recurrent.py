"""Recurrent layers on packed sequences, whose examples end at different times."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils.rnn import pack_padded_sequence

from monograph.frontends.torch import import_torch
from monograph.frontends.torch.program import import_graph_module
from monograph.frontends.torch.runner import TorchModel


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_layers_on_packed_sequences_agree_with_torch(kind: str, bidirectional: bool) -> None:
    torch.manual_seed(0)
    modules = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn_tanh": torch.nn.RNN}
    layer = modules.get(kind, torch.nn.RNN)(3, 4, num_layers=2, bidirectional=bidirectional)
    packed = pack_padded_sequence(torch.randn(5, 3, 3), torch.tensor([5, 3, 1]))
    state = torch.randn(2 * (1 + bidirectional), 3, 4)
    hidden: Any = [state, state + 1] if kind == "lstm" else state
    parameters = [parameter.detach() for parameter in layer.parameters()]
    operation = getattr(torch.ops.aten, kind).data

    def function(data: Any, sizes: Any) -> Any:
        return operation(data, sizes, hidden, parameters, True, 2, 0.0, False, bidirectional)

    module = make_fx(function, tracing_mode="real", pre_dispatch=True)(
        packed.data, packed.batch_sizes
    )
    assert any(node.target is operation for node in module.graph.nodes)
    got = TorchModel(import_graph_module(module))(packed.data, packed.batch_sizes)
    torch.testing.assert_close(got, function(packed.data, packed.batch_sizes))


def test_last_states_that_older_torch_records_with_one_dimension_more() -> None:
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.LSTM(3, 4, 2)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            outputs, (hidden, cell) = self.layer(x)
            return outputs, hidden, cell + 1

    module, x = Layer().eval(), torch.randn(5, 2, 3)
    program = torch.export.export(module, (x,))
    (node,) = (each for each in program.graph.nodes if "lstm" in str(each.target))
    outputs, *states = node.meta["val"]
    node.meta["val"] = (outputs, *(state.unsqueeze(1) for state in states))
    for each in node.users:
        each.meta["val"] = node.meta["val"][each.args[1]]
    got = TorchModel(import_torch(program))(x)
    torch.testing.assert_close(tuple(got), module(x))
