"""One residual block in several IRs: a graph as a table, what could fuse, FX edited, XLA's HLO.

python examples/inspect_irs.py
"""

import torch

import monograph
from monograph.exporters.formats import FORMATS
from monograph.exporters.fx import to_fx
from monograph.inspect.side_by_side import text_of
from monograph.inspect.structure import fusable_chains, op_counts, skip_connections
from monograph.inspect.views import views_of


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(8, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)

    def forward(self, x):
        y = self.norm(self.conv(x))
        return torch.relu(x + y)


torch.manual_seed(0)
block, x = Block().eval(), torch.randn(1, 8, 6, 6)
graph = monograph.from_torch(block, x)

print("ops:", op_counts(graph))
for skip in skip_connections(graph):
    print(f"residual: %{skip.source.name} meets what {len(skip.path)} nodes make of it")
print("could fuse:", [[node.op.name for node in chain] for chain in fusable_chains(graph)])

module = to_fx(graph)
for node in module.graph.nodes:
    if node.target is torch.relu:
        node.target, node.kwargs = torch.nn.functional.leaky_relu, {"negative_slope": 0.1}
module.graph.lint()
module.recompile()
expected = torch.nn.functional.leaky_relu(x + block.norm(block.conv(x)), 0.1)
print("leaky_relu in FX agrees:", torch.allclose(module(x), expected, atol=1e-5))

for name in ("torchscript", "onnx", "stablehlo"):
    written = FORMATS[name].export(graph)
    (answer,) = written.run([x.numpy()])
    difference = float(abs(answer - block(x).detach().numpy()).max())
    print(f"{FORMATS[name].title}: differs from torch by at most {difference:.0e}")

print()
print(text_of("block", views_of(graph, ["fx", "onnx", "monograph"])))
