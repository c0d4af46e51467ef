"""Cases of com.microsoft's MurmurHash3 and NGramRepeatBlock."""

import numpy as np

from tests.ops.cases import array, case, f32, i64, refuse

CONTRIB = "com.microsoft"
BOTH = {"domain": CONTRIB, "against_onnxruntime": True}

TEXTS = np.array(["", "a", "ab", "abc", "abcd", "hello world", "häß", "日本語", "x" * 100], object)
for settings in ({}, {"seed": 7}, {"positive": 0}, {"seed": -5, "positive": 0}):
    for dtype in (np.int32, np.int64, np.uint32, np.uint64, np.float32, np.float64):
        case("MurmurHash3", X=array(dtype, 2, 5), **settings, **BOTH)
    case("MurmurHash3", X=TEXTS, **settings, **BOTH)
    case("MurmurHash3", X=TEXTS[1:].reshape(2, 4), **settings, **BOTH)
    case("MurmurHash3", X=np.array(3, np.int32), **settings, **BOTH)
# values of the reference implementation
case("MurmurHash3", X=np.array(["", "test", "Hello, world!"], object), domain=CONTRIB, expect=[0, 0xBA6BD213, 0xC0363E43])
case("MurmurHash3", X=i64(0, 3), domain=CONTRIB, expect=np.zeros((0, 3), np.uint32))

IDS = np.array([[1, 2, 3, 1, 2], [4, 5, 4, 5, 4]])


def blocked(input_ids, scores, ngram_size):
    output = scores.copy()
    for row, tokens in enumerate(input_ids.tolist()):
        for token in range(scores.shape[1]):
            new = [*tokens, token][-ngram_size:]
            runs = [tokens[start : start + ngram_size] for start in range(len(tokens) - ngram_size + 1)]
            if new in runs:
                output[row, token] = -np.inf
    return output


for size in (1, 2, 3, 4, 5, 6, 9):
    case("NGramRepeatBlock", input_ids=IDS, scores=f32(2, 7), ngram_size=size, **BOTH, expect=blocked)
case("NGramRepeatBlock", input_ids=i64(4, 30, low=0, high=3), scores=f32(4, 3), ngram_size=3, **BOTH, expect=blocked)
case("NGramRepeatBlock", input_ids=i64(1, 1, low=0, high=3), scores=f32(1, 3), ngram_size=1, **BOTH, expect=blocked)
case(
    "NGramRepeatBlock", input_ids=i64(0, 5), scores=f32(0, 3), ngram_size=2, domain=CONTRIB, expect=np.zeros((0, 3), np.float32)
)
refuse(
    "NGramRepeatBlock", input_ids=IDS, scores=f32(2, 3), ngram_size=2, domain=CONTRIB, match=r"token_id 3 out of range \[0, 3\)"
)
refuse("NGramRepeatBlock", input_ids=IDS, scores=f32(1, 9), ngram_size=2, domain=CONTRIB, match="2 rows of tokens")
refuse("NGramRepeatBlock", input_ids=IDS, scores=f32(2, 9), ngram_size=0, domain=CONTRIB, match="must be positive")
