"""Products."""

from __future__ import annotations

from sardonyx.training.torch.aten.table import aten


@aten("mm.default", "bmm.default", "mv.default", "dot.default", "matmul.default")
def product(op, self, **arguments):
    (other,) = arguments.values()
    return op.MatMul(self, other)


@aten("addmm.default")
def addmm(op, self, mat1, mat2, beta=1, alpha=1):
    if op.rank(self) > 2 or beta == 0:
        return op.scaled(op.MatMul(mat1, mat2), alpha)
    return op.Gemm(mat1, mat2, self, alpha=float(alpha), beta=float(beta))


@aten("addmv.default")
def addmv(op, self, mat, vec, beta=1, alpha=1):
    return op.Add(op.scaled(self, beta), op.scaled(op.MatMul(mat, vec), alpha))


@aten("baddbmm.default")
def baddbmm(op, self, batch1, batch2, beta=1, alpha=1):
    whole = op.scaled(op.MatMul(batch1, batch2), alpha)
    return whole if beta == 0 else op.Add(op.scaled(self, beta), whole)
