"""Factorizations, solvers, spectra and Fourier transforms."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from monograph.exporters.fx.emitter import TABLE, FxEmitter, Term, refuse_empty
from monograph.ir.graph import Node
from monograph.ir.op import Op
from monograph.ops.factorize import Cholesky, LuFactor, Qr
from monograph.ops.fft import Fft, Irfft, Rfft
from monograph.ops.solve import Determinant, Inverse, MatrixExp, Slogdet, Solve, TriangularSolve
from monograph.ops.spectral import Eig, Eigh, EighValues, EigValues, SingularValues, Svd

FORWARD: Mapping[str, str] = {"none": "backward", "root": "ortho", "count": "forward"}
BACKWARD: Mapping[str, str] = {"none": "forward", "root": "ortho", "count": "backward"}
"""torch's norms that scale as ours, for transforms there and back."""

SINGLE = {
    "determinant": torch.linalg.det,
    "eig_values": torch.linalg.eigvals,
    "inverse": torch.linalg.inv,
    "matrix_exp": torch.linalg.matrix_exp,
    "singular_values": torch.linalg.svdvals,
    "solve": torch.linalg.solve,
}


@TABLE.writes(Determinant, EigValues, Inverse, MatrixExp, SingularValues, Solve)
def _single(emitter: FxEmitter, node: Node, op: Op) -> Term:
    return emitter.call(SINGLE[op.name], *emitter.operands(node))


@TABLE.writes(Fft, unless=refuse_empty)
def _fft(emitter: FxEmitter, node: Node, op: Fft) -> Term:
    (x,) = emitter.operands(node)
    if not op.axes:
        return x
    function = torch.fft.ifftn if op.inverse else torch.fft.fftn
    norm = (BACKWARD if op.inverse else FORWARD)[op.scale]
    return emitter.call(function, x, dim=list(op.axes), norm=norm)


@TABLE.writes(Rfft, unless=refuse_empty)
def _rfft(emitter: FxEmitter, node: Node, op: Rfft) -> Term:
    (x,) = emitter.operands(node)
    return emitter.call(torch.fft.rfftn, x, dim=list(op.axes), norm=FORWARD[op.scale])


@TABLE.writes(Irfft, unless=refuse_empty)
def _irfft(emitter: FxEmitter, node: Node, op: Irfft) -> Term:
    (x,) = emitter.operands(node)
    *outer, last = op.axes
    norm = BACKWARD[op.scale]
    if outer:
        x = emitter.call(torch.fft.ifftn, x, dim=outer, norm=norm)
    return emitter.call(torch.fft.irfft, x, n=emitter.size(op.length), dim=last, norm=norm)


@TABLE.writes(Cholesky)
def _cholesky(emitter: FxEmitter, node: Node, op: Cholesky) -> Term:
    return emitter.call(torch.linalg.cholesky, *emitter.operands(node), upper=op.upper)


@TABLE.writes(Qr)
def _qr(emitter: FxEmitter, node: Node, op: Qr) -> list[Term]:
    mode = "complete" if op.complete else "reduced"
    return emitter.unpack(emitter.call(torch.linalg.qr, *emitter.operands(node), mode=mode), 2)


@TABLE.writes(
    LuFactor,
    unless=lambda node: None if node.op.attributes()["pivot"] else "on a CPU torch exchanges rows",
)
def _lu_factor(emitter: FxEmitter, node: Node, op: LuFactor) -> list[Term]:
    return emitter.unpack(emitter.call(torch.linalg.lu_factor_ex, *emitter.operands(node)), 2)


@TABLE.writes(Slogdet)
def _slogdet(emitter: FxEmitter, node: Node, op: Slogdet) -> list[Term]:
    return emitter.unpack(emitter.call(torch.linalg.slogdet, *emitter.operands(node)), 2)


@TABLE.writes(TriangularSolve)
def _triangular_solve(emitter: FxEmitter, node: Node, op: TriangularSolve) -> Term:
    return emitter.call(
        torch.linalg.solve_triangular,
        *emitter.operands(node),
        upper=op.upper,
        unitriangular=op.unit_diagonal,
    )


@TABLE.writes(Eigh)
def _eigh(emitter: FxEmitter, node: Node, op: Eigh) -> list[Term]:
    made = emitter.call(torch.linalg.eigh, *emitter.operands(node), "U" if op.upper else "L")
    return emitter.unpack(made, 2)


@TABLE.writes(EighValues)
def _eigh_values(emitter: FxEmitter, node: Node, op: EighValues) -> Term:
    return emitter.call(torch.linalg.eigvalsh, *emitter.operands(node), "U" if op.upper else "L")


@TABLE.writes(Eig)
def _eig(emitter: FxEmitter, node: Node, op: Eig) -> list[Term]:
    return emitter.unpack(emitter.call(torch.linalg.eig, *emitter.operands(node)), 2)


@TABLE.writes(Svd)
def _svd(emitter: FxEmitter, node: Node, op: Svd) -> list[Term]:
    made = emitter.call(torch.linalg.svd, *emitter.operands(node), op.full_matrices)
    return emitter.unpack(made, 3)
