"""Cases of Einsum."""

from __future__ import annotations

import numpy as np
import pytest

from sardonyx import dtypes
from sardonyx.errors import KernelError
from sardonyx.providers.cpu.einsum import einsum
from tests.ops.cases import case, f32, f64, i64, refuse

X, Y, S = f32(2, 3), f32(3, 4), f32(3, 3)
NUMBERS = {t for t in dtypes.NUMERIC if t.bits >= 8}

case("Einsum", Inputs=[X, Y], equation="ij,jk->ik", expect=lambda Inputs: Inputs[0] @ Inputs[1])
case("Einsum", Inputs=[X, Y], equation="ij,jk", expect=lambda Inputs: Inputs[0] @ Inputs[1])
case("Einsum", Inputs=[X, Y], equation=" i j , jk -> ki ", expect=lambda Inputs: (Inputs[0] @ Inputs[1]).T)
case("Einsum", Inputs=[X], equation="ij->ji", expect=lambda Inputs: Inputs[0].T)
case("Einsum", Inputs=[X], equation="ba", expect=lambda Inputs: Inputs[0].T)
case("Einsum", Inputs=[X], equation="bA", expect=lambda Inputs: Inputs[0].T)
case("Einsum", Inputs=[X], equation="ij->", expect=lambda Inputs: Inputs[0].sum())
case("Einsum", Inputs=[S], equation="ii->i", expect=lambda Inputs: np.diag(Inputs[0]))
case("Einsum", Inputs=[S], equation="ii", expect=lambda Inputs: np.trace(Inputs[0]))
case("Einsum", Inputs=[f32(3), f32(3)], equation="i,i", expect=lambda Inputs: (Inputs[0] * Inputs[1]).sum())
case("Einsum", Inputs=[f32(2), f32(3)], equation="i,j->ij", expect=lambda Inputs: np.outer(*Inputs))
case("Einsum", Inputs=[f32(2, 3, 4), f32(2, 4, 5)], equation="bij,bjk->bik", expect=lambda Inputs: Inputs[0] @ Inputs[1])
case(
    "Einsum",
    Inputs=[f32(2, 5, 3, 4), f32(2, 5, 6, 4)],
    equation="bhid,bhjd->bhij",
    expect=lambda Inputs: Inputs[0] @ np.swapaxes(Inputs[1], 2, 3),
)
case("Einsum", Inputs=[f32(5, 3, 4), f32(4, 2)], equation="...ij,...jk->...ik", expect=lambda Inputs: Inputs[0] @ Inputs[1])
case("Einsum", Inputs=[f32(5, 3, 4)], equation="...ij->...", expect=lambda Inputs: Inputs[0].sum(axis=(1, 2)))
case("Einsum", Inputs=[f32(7, 1, 3, 4), f32(5, 4, 2)], equation="...ij,...jk", expect=lambda Inputs: Inputs[0] @ Inputs[1])
case("Einsum", Inputs=[f32(1, 3), f32(5, 3)], equation="ij,ij->i", expect=lambda Inputs: (Inputs[0] * Inputs[1]).sum(axis=1))
case(
    "Einsum",
    Inputs=[f32(2, 3), f32(1, 4)],
    equation="ij,jk->ik",
    expect=lambda Inputs: Inputs[0].sum(axis=1)[:, None] * Inputs[1],
)
case(
    "Einsum",
    Inputs=[f64(2, 3), f64(3, 4), f64(4, 5)],
    equation="ij,jk,kl->il",
    expect=lambda Inputs: Inputs[0] @ Inputs[1] @ Inputs[2],
)
case(
    "Einsum",
    Inputs=[f32(2), f32(3), f32(2)],
    equation="a,b,a->b",
    expect=lambda Inputs: Inputs[1] * (Inputs[0] * Inputs[2]).sum(),
)
case("Einsum", Inputs=[f32(0, 3), f32(3, 4)], equation="ij,jk->ik", expect=np.zeros((0, 4), np.float32))
case("Einsum", Inputs=[f32(2, 0), f32(0, 4)], equation="ij,jk->ik", expect=np.zeros((2, 4), np.float32))
case("Einsum", Inputs=[f32(), f32()], equation=",->", expect=lambda Inputs: Inputs[0] * Inputs[1])
case(
    "Einsum",
    Inputs=[i64(2, 3), i64(3, 2)],
    equation="ij,jk->ik",
    types={"T": NUMBERS},
    expect=lambda Inputs: Inputs[0] @ Inputs[1],
)
case(
    "Einsum",
    Inputs=[i64(2, 3)],
    equation="ij->j",
    types={"T": NUMBERS},
    expect=lambda Inputs: Inputs[0].sum(axis=0, dtype=Inputs[0].dtype),
)
refuse("Einsum", Inputs=[X], equation="i->i", match="does not fit")
refuse("Einsum", Inputs=[X], equation="ij,jk->ik", match="terms")
refuse("Einsum", Inputs=[X], equation="ij->k", match="output")
refuse("Einsum", Inputs=[X], equation="ij->ii", match="output")
refuse("Einsum", Inputs=[X], equation="i1->i", match="not an einsum")
refuse("Einsum", Inputs=[X], equation="...j->j", match="ellipsis")
refuse("Einsum", Inputs=[X, X], equation="ij,jk->ik", match="broadcast")


@pytest.mark.parametrize(
    "equation", ["abc,cd,be->ade", "ii,ij->j", "ijj,kj->ki", "ab,cd->", "aB,Ba->aB", "ii,jj->", "abcd,cb->da"]
)
def test_einsum_agrees_with_numpy(equation):
    rng = np.random.default_rng(4)
    sizes = {label: size for size, label in enumerate("aBbcdeijk", start=2)}
    operands = [rng.normal(size=[sizes[label] for label in term]) for term in equation.split("->")[0].split(",")]
    np.testing.assert_allclose(einsum(operands, equation), np.einsum(equation, *operands), rtol=1e-10)


def test_einsum_names_the_sizes_that_do_not_fit():
    with pytest.raises(KernelError, match=r"axis 'j' has sizes 3 and 2, the shapes are \{2,3\}, \{2,2\}"):
        einsum([np.zeros((2, 3)), np.zeros((2, 2))], "ij,jk->ik")
