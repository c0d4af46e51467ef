"""What takes more memory than there is gets an error that names the node, whoever says how large it is."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import sardonyx
from sardonyx.errors import Fail
from sardonyx.providers import memory_limit

LIMIT = 1 << 16
LARGE = 1 << 20

FED = {
    "ConstantOfShape": "g (int64[1] n) => (float[m] y) { y = ConstantOfShape(n) }",
    "Expand": "g (int64[1] n, float[1] x) => (y) { y = Expand(x, n) }",
    "Tile": "g (int64[1] n, float[1] x) => (y) { y = Tile(x, n) }",
    "Range": "g (int64 n, int64 zero, int64 one) => (y) { y = Range(zero, n, one) }",
    "OneHot": "g (int64 n, int64[1] zero, float[2] x) => (y) { y = OneHot(zero, n, x) }",
    "Pad": "g (int64[1] n, int64[1] zero, float[1] x) => (y) { p = Concat<axis=0>(zero, n) y = Pad(x, p) }",
    "HannWindow": "g (int64 n) => (y) { y = HannWindow(n) }",
    "BlackmanWindow": "g (int64 n) => (y) { y = BlackmanWindow(n) }",
    "MelWeightMatrix": "g (int64 n, int64 one, float x) => (y) { y = MelWeightMatrix(n, one, n, x, x) }",
    "DFT": "g (int64 n, float[1,4,1] x) => (y) { y = DFT(x, n) }",
    "Resize": 'g (int64[1] n, float[4] x) => (y) { y = Resize<mode="linear">(x, , , n) }',
    "AffineGrid": "g (int64[1] n, int64[3] one, float[1,2,3] x) => (y) { s = Concat<axis=0>(one, n) y = AffineGrid(x, s) }",
    "MaxUnpool": (
        "g (int64[1] n, int64[3] one, float[1,1,1,1] x, int64[1,1,1,1] zero) => (y)"
        "{ s = Concat<axis=0>(one, n) y = MaxUnpool<kernel_shape=[1,1]>(x, zero, s) }"
    ),
}
WRITTEN = {
    "RandomNormal": f"g () => (y) {{ y = RandomNormal<shape=[{LARGE}]>() }}",
    "RandomUniform": f"g () => (y) {{ y = RandomUniform<shape=[{LARGE}]>() }}",
    "Multinomial": f"g (float[1,2] x) => (y) {{ y = Multinomial<sample_size={LARGE}>(x) }}",
    "Conv": f"g (float[1,1,4] x, float[1,1,1] w) => (y) {{ y = Conv<pads=[{LARGE},0]>(x, w) }}",
    "ConvTranspose": f"g (float[1,1,4] x, float[1,1,1] w) => (y) {{ y = ConvTranspose<output_shape=[{LARGE}]>(x, w) }}",
    "MaxPool": f"g (float[1,1,4] x) => (y) {{ y = MaxPool<kernel_shape=[1], pads=[{LARGE},0]>(x) }}",
    "RoiAlign": (
        f"g (float[1,1,4,4] x, float[1,4] r, int64[1] zero) => (y) {{ y = RoiAlign<output_height={LARGE}>(x, r, zero) }}"
    ),
    "MaxRoiPool": f"g (float[1,1,4,4] x, float[1,5] r) => (y) {{ y = MaxRoiPool<pooled_shape=[{LARGE}, 1]>(x, r) }}",
}


def feed(given: onnx.ValueInfoProto) -> np.ndarray:
    shape = [size.dim_value for size in given.type.tensor_type.shape.dim]
    if given.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
        return np.zeros(shape, np.float32)
    return np.full(shape, {"n": LARGE, "one": 1, "zero": 0}[given.name], np.int64)


@pytest.mark.parametrize("native", ["0", "1"])
@pytest.mark.parametrize("op", [*FED, *WRITTEN])
def test_a_result_beyond_memory_is_refused(op: str, native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limit, "largest_bytes", lambda: LIMIT)
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {({**FED, **WRITTEN})[op]}')
    options = sardonyx.SessionOptions()
    options.log_severity_level = 4
    session = sardonyx.InferenceSession(model, options, [("CPUExecutionProvider", {"native": native})])
    with pytest.raises(Fail, match=f"{op} .*more than the {LIMIT} that there are"):
        session.run(None, {given.name: feed(given) for given in model.graph.input})


EMPTY = {
    "RoiAlign": f"g (float[1,1,4,4] x, float[n,4] r, int64[n] b) => (y) {{ y = RoiAlign<output_height={LARGE}>(x, r, b) }}",
    "MaxRoiPool": f"g (float[1,1,4,4] x, float[n,5] r) => (y) {{ y = MaxRoiPool<pooled_shape=[{LARGE}, 1]>(x, r) }}",
    "Pad": f"g (float[n,1] x) => (y) {{ p = Constant<value_ints=[0, 0, 0, {LARGE}]>() y = Pad(x, p) }}",
    "Conv": f"g (float[n,1,4] x, float[1,1,1] w) => (y) {{ y = Conv<pads=[{LARGE},0]>(x, w) }}",
    "MaxPool": f"g (float[n,1,4] x) => (y) {{ y = MaxPool<kernel_shape=[1], pads=[{LARGE},0]>(x) }}",
    "Expand": f"g (float[1] x, int64[1] n) => (y) {{ c = Constant<value_ints=[{LARGE}]>() s = Concat<axis=0>(n, c) y = Expand(x, s) }}",
}
"""Results of a large size and one that is open, which is 0 when they run."""


@pytest.mark.parametrize("native", ["0", "1"])
@pytest.mark.parametrize("op", EMPTY)
def test_a_large_result_without_elements_takes_no_memory(op: str, native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limit, "largest_bytes", lambda: LIMIT)
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {EMPTY[op]}')
    session = sardonyx.InferenceSession(model, None, [("CPUExecutionProvider", {"native": native})])
    types = {onnx.TensorProto.FLOAT: np.float32, onnx.TensorProto.INT64: np.int64}
    feeds = {}
    for given in model.graph.input:
        tensor = given.type.tensor_type
        feeds[given.name] = np.zeros([size.dim_value for size in tensor.shape.dim], types[tensor.elem_type])  # n is 0
    (result,) = session.run(None, feeds)
    assert result.size == 0
    assert max(result.shape) >= LARGE


def test_the_limit_is_that_of_the_machine() -> None:
    assert 1 << 28 < memory_limit.largest_bytes() <= memory_limit.LARGEST_BYTES


def test_a_control_group_has_a_limit_of_its_own(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, expected in (("max\n", memory_limit.LARGEST_BYTES), ("1048576\n", 1 << 20)):
        path = tmp_path / "memory.max"
        path.write_text(text)
        monkeypatch.setattr(memory_limit, "CONTROL_GROUPS", (str(path),))
        assert memory_limit.largest_bytes.__wrapped__() <= expected
    assert memory_limit.largest_bytes.__wrapped__() == 1 << 20
