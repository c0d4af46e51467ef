"""A rewrite rule of your own: log(1 + exp(x)), which overflows for large x, becomes Softplus, which does not.

A rule is a pattern and a function that returns what stands in its place, or says why not. It is applied to a model between loading and
saving; sessions then run what was saved.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser

import sardonyx
from sardonyx import formats, ops
from sardonyx.optimizer.rewrite import Journal, apply_rules, rule, skip

TEXT = """
<ir_version: 10, opset_import: ["": 21]>
g (float[N] x) => (float[N] y, float[N] z) <float one = {1}, float two = {2}> {
    e = Exp(x)
    sum = Add(e, one)
    y = Log(sum)
    f = Exp(x)
    other = Add(f, two)
    logarithm = Log(other)
    z = Add(logarithm, one)
}
"""


@rule("Log(Add(Exp(x), addend))")
def softplus(op: Any, x: Any, addend: Any) -> Any:
    """log(exp(x) + 1) is Softplus(x)."""
    if addend.constant is None or addend.constant.shape or addend.constant.numpy() != 1:
        return skip("1 is not added")
    return op.Softplus(x)


def improved(proto: onnx.ModelProto, path: Path, journal: Journal) -> onnx.ModelProto:
    """The model with the rule applied wherever it fits, saved at `path`."""
    model = formats.load(proto)
    ops.infer(model)
    apply_rules(model, [softplus], journal=journal)
    formats.save(model, path)
    return onnx.load(path)


def main() -> None:
    before, journal = onnx.parser.parse_model(TEXT), Journal()
    with tempfile.TemporaryDirectory() as folder:
        after = improved(before, Path(folder) / "improved.onnx", journal)
    print("before:", [node.op_type for node in before.graph.node])
    print("after: ", [node.op_type for node in after.graph.node])
    for event in journal.events:
        print(f"{event.rule} at {event.node}: {event.reason or 'applied'}")

    x = np.array([-1, 0, 1, 100], np.float32)
    overflowing, right = (sardonyx.InferenceSession(model).run(["y"], {"x": x})[0] for model in (before, after))
    print(overflowing, "→", right)
    assert np.isinf(overflowing[3]) and right[3] == 100
    np.testing.assert_allclose(right[:3], overflowing[:3], rtol=1e-6)


if __name__ == "__main__":
    main()
