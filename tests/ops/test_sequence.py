"""Cases of sequences and optionals."""

from __future__ import annotations

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import ALL
from sardonyx.ir import TensorType
from tests.ops.cases import case, f32, i64, refuse, strings, typed

A, B, C = f32(2, 3), f32(1, 3), f32(2, 3)
EMPTY = typed([], "seq(tensor(float))")

case("SequenceConstruct", inputs=[A, B], expect=[A, B])
case("SequenceConstruct", inputs=[A], types={"T": ALL}, expect=lambda inputs: inputs)
case("SequenceEmpty", expect=[])
case("SequenceEmpty", dtype=dtypes.int64.code, expect=[])

case("SequenceAt", input_sequence=[A, C], position=np.int64(1), sizes_known=False, expect=C)
case("SequenceAt", input_sequence=[A, B], position=np.int32(-2), sizes_known=False, expect=A)
refuse("SequenceAt", input_sequence=[A, B], position=np.int64(2), match=r"index \(2\) specified for sequence of size \(2\)")
refuse("SequenceAt", input_sequence=EMPTY, position=np.int64(0), match=r"index \(0\)")

case("SequenceInsert", input_sequence=[A, B], tensor=C, expect=[A, B, C])
case("SequenceInsert", input_sequence=[A, B], tensor=C, position=np.int64(0), expect=[C, A, B])
case("SequenceInsert", input_sequence=[A, B], tensor=C, position=np.int64(-1), expect=[A, C, B])
case("SequenceInsert", input_sequence=[A, B], tensor=C, position=np.int32(2), expect=[A, B, C])
case("SequenceInsert", input_sequence=EMPTY, tensor=C, expect=[C])
refuse("SequenceInsert", input_sequence=[A, B], tensor=C, position=np.int64(3), match=r"index \(3\)")
refuse("SequenceInsert", input_sequence=[A, B], tensor=C, position=np.int64(-3), match=r"index \(-3\)")

case("SequenceErase", input_sequence=[A, B, C], expect=[A, B])
case("SequenceErase", input_sequence=[A, B, C], position=np.int64(0), expect=[B, C])
case("SequenceErase", input_sequence=[A, B, C], position=np.int64(-2), expect=[A, C])
refuse("SequenceErase", input_sequence=EMPTY, match=r"index \(-1\)")

case("SequenceLength", input_sequence=[A, B, C], expect=np.int64(3))
case("SequenceLength", input_sequence=EMPTY, expect=np.int64(0))

case("ConcatFromSequence", input_sequence=[A, B], axis=0, sizes_known=False, expect=np.concatenate([A, B]))
case("ConcatFromSequence", input_sequence=[A, C], axis=-1, sizes_known=False, expect=np.concatenate([A, C], axis=1))
case("ConcatFromSequence", input_sequence=[A, C], axis=-1, new_axis=1, sizes_known=False, expect=np.stack([A, C], axis=2))
case("ConcatFromSequence", input_sequence=[A, C], axis=0, new_axis=1, sizes_known=False, expect=np.stack([A, C]))
refuse("ConcatFromSequence", input_sequence=[A, B], axis=1, match="do not join")
refuse("ConcatFromSequence", input_sequence=EMPTY, axis=0, match="empty")
refuse("ConcatFromSequence", input_sequence=[A, C], axis=2, match="axis")

case("SplitToSequence", input=A, expect=lambda input: [input[:1], input[1:]])
case("SplitToSequence", input=A, axis=-1, keepdims=0, expect=lambda input: [input[:, 0], input[:, 1], input[:, 2]])
case("SplitToSequence", input=A, axis=1, split=np.int64(2), keepdims=0, expect=lambda input: [input[:, :2], input[:, 2:]])
case(
    "SplitToSequence",
    input=A,
    axis=1,
    split=np.array([1, 0, 2], np.int32),
    expect=lambda input: [input[:, :1], input[:, 1:1], input[:, 1:]],
)
case("SplitToSequence", input=f32(0, 2), expect=[])
case("SplitToSequence", input=i64(2), types={"T": ALL}, expect=lambda input: [input[:1], input[1:]])
refuse("SplitToSequence", input=A, split=np.array([1, 2]), match="split")
refuse("SplitToSequence", input=A, split=np.int64(0), match="split")

case("SequenceMap", input_sequence=[A, B], body="b (float[a, b] x) => (float[a, b] y) { y = Neg(x) }", expect=[-A, -B])
case(
    "SequenceMap", input_sequence=[A, C], additional_inputs=[B],
    body="b (float[a, b] x, float[c, b] z) => (float[a, b] y, int64[2] s) { y = Add(x, z) s = Shape(x) }",
    expect=([A + B, C + B], [np.array([2, 3]), np.array([2, 3])]),
)  # fmt: skip
case("SequenceMap", input_sequence=EMPTY, body="b (float[a] x) => (float[a] y) { y = Neg(x) }", expect=[])

case("Optional", input=A, expect=A)
case("Optional", input=[A, B], expect=[A, B])
case("Optional", type=TensorType(dtypes.float32, (2,)), satisfies=lambda output: output is None)
refuse("Optional", match="type")

case("OptionalGetElement", input=typed(A, "optional(tensor(float))"), sizes_known=False, expect=A)
case("OptionalGetElement", input=A, since=18, expect=A)
case("OptionalGetElement", input=typed([A, B], "optional(seq(tensor(float)))"), expect=[A, B])
refuse("OptionalGetElement", input=typed(None, "optional(tensor(float))"), match="no data")

case("OptionalHasElement", input=typed(A, "optional(tensor(float))"), expect=np.array(True))
case("OptionalHasElement", input=typed(None, "optional(tensor(float))"), expect=np.array(False))
case("OptionalHasElement", input=typed([], "optional(seq(tensor(float)))"), expect=np.array(True))
case("OptionalHasElement", since=18, expect=np.array(False))
case("OptionalHasElement", input=strings(2), since=18, expect=np.array(True))
