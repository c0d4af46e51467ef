"""Cases of ops that draw random numbers: shapes, types, moments, and that a seed repeats them."""

import numpy as np
import pytest

from sardonyx import dtypes
from sardonyx.dtypes import FLOAT8, FLOATS, INTS
from sardonyx.providers.cpu import random as kernels
from sardonyx.providers.random_state import generator, set_seed
from tests.ops.cases import array, booleans, case, f16, f32, f64, i64, refuse, strings

COUNT = 20000


def is_normal(output, mean, scale):
    values = output.astype(np.float64)
    return abs(values.mean() - mean) < 0.05 * scale and abs(values.std() / scale - 1) < 0.05


def is_uniform(output, low, high):
    values = (output.astype(np.float64) - low) / (high - low)
    return values.min() >= 0 and values.max() <= 1 and abs(values.mean() - 0.5) < 0.02 and abs(values.std() - 12**-0.5) < 0.02


case("RandomNormal", shape=[2, COUNT], satisfies=lambda output: is_normal(output, 0, 1) and output.dtype == np.float32)
case("RandomUniform", shape=[2, COUNT], satisfies=lambda output: is_uniform(output, 0, 1) and output.dtype == np.float32)
for dtype in sorted(FLOATS, key=str):
    since = 22 if dtype is dtypes.bfloat16 else 1
    given = {"dtype": dtype.code, "since": since, "seed": 3.0}
    case("RandomNormal", shape=[COUNT], mean=5.0, scale=0.5, **given, satisfies=lambda output: is_normal(output, 5, 0.5))
    case("RandomUniform", shape=[COUNT], low=-2.0, high=-1.0, **given, satisfies=lambda output: is_uniform(output, -2, -1))
    like = array(dtype.numpy, 4, COUNT // 4)
    case("RandomNormalLike", input=like, mean=5.0, scale=0.5, satisfies=lambda output: is_normal(output, 5, 0.5))
    case("RandomUniformLike", input=like, low=-2.0, high=-1.0, satisfies=lambda output: is_uniform(output, -2, -1))
case("RandomNormal", shape=[], satisfies=lambda output: output.shape == ())
case("RandomUniform", shape=[0, 2], satisfies=lambda output: output.shape == (0, 2))
for given in (i64(2, 3), booleans(2, 3), strings(2, 3), array(np.complex64, 2, 3)):
    case("RandomNormalLike", input=given, dtype=dtypes.float64.code, satisfies=lambda output: output.shape == (2, 3))
    case("RandomUniformLike", input=given, dtype=dtypes.float16.code, satisfies=lambda output: output.shape == (2, 3))

LIKELIHOOD = np.repeat(np.array([0, 0.3, 1]), 3000).reshape(3, 3000)


def is_bernoulli(output):
    ones = output.astype(np.float64)
    return not ones[0].any() and ones[2].all() and abs(ones[1].mean() - 0.3) < 0.05 and set(ones[1].tolist()) == {0, 1}


case("Bernoulli", input=LIKELIHOOD, types={"T1": FLOATS}, satisfies=is_bernoulli)
for dtype in sorted(FLOATS | INTS - dtypes.SUB_BYTE_INTS | {dtypes.bool_}, key=str):
    case("Bernoulli", input=LIKELIHOOD, dtype=dtype.code, seed=1.0, satisfies=is_bernoulli)
case("Bernoulli", input=np.array(1, np.float32), satisfies=lambda output: output == 1)

LOGITS = np.log(np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 1e-30]]))


def is_multinomial(output):
    first, second = (np.bincount(row, minlength=3) / COUNT for row in output)
    return np.allclose(first, [0.1, 0.2, 0.7], atol=0.02) and np.allclose(second, [0.5, 0.5, 0], atol=0.02)


MULTINOMIAL_TYPES = {dtypes.float32, dtypes.float64, dtypes.bfloat16}
case("Multinomial", input=LOGITS, sample_size=COUNT, types={"T1": MULTINOMIAL_TYPES}, satisfies=is_multinomial)
case("Multinomial", input=LOGITS + 900, sample_size=COUNT, dtype=dtypes.int64.code, seed=2.0, satisfies=is_multinomial)
case("Multinomial", input=f16(3, 1), expect=np.zeros((3, 1), np.int32))
refuse("Multinomial", input=f32(3), match="rank 2")
refuse("Multinomial", input=f32(3, 0), match="classes")


DATA = f32(40, 50, low=1, high=2)


def is_dropped(ratio):
    """A share of about `ratio` is zero where the mask is, the rest is scaled up."""

    def holds(output, mask):
        output, kept = output.astype(np.float64), mask.astype(np.bool_)
        return abs(1 - kept.mean() - ratio) < 0.06 and np.allclose(output, np.where(kept, DATA / (1 - ratio), 0), rtol=0.26)

    return holds


TRAINING = {"data": DATA, "training_mode": True, "outputs": 2}
case("Dropout", **TRAINING, seed=0, types={"T": FLOATS}, satisfies=is_dropped(0.5))
case("Dropout", **TRAINING, ratio=0.25, types={"T1": FLOATS | FLOAT8}, satisfies=is_dropped(0.25))
case("Dropout", **TRAINING, ratio=0.0, satisfies=lambda output, mask: (output == DATA).all() and mask.all())
case("Dropout", data=DATA, outputs=2, types={"T": FLOAT8}, training_mode=True, satisfies=is_dropped(0.5))
case("Dropout", data=DATA, ratio=0.25, outputs=2, until=6, satisfies=is_dropped(0.25))
case("Dropout", data=DATA, ratio=0.25, is_test=1, expect=lambda data: (data, np.ones((40, 50), np.float32)))
INFERENCE_TYPES = {"T": FLOATS | FLOAT8}
case("Dropout", data=f64(3, 4), types=INFERENCE_TYPES, since=7, expect=lambda data: (data, np.ones((3, 4), np.bool_)))
case("Dropout", data=f64(3, 4), ratio=0.75, since=7, expect=lambda data: data)
case("Dropout", data=f64(3, 4), ratio=0.75, training_mode=False, expect=lambda data: (data, np.ones((3, 4), np.bool_)))
case("Dropout", data=f32(0), training_mode=True, expect=lambda data: (data, np.zeros(0, np.bool_)))
refuse("Dropout", data=f32(3), ratio=1.0, training_mode=True, match="range")


def test_training_dropout_takes_the_legacy_stream_of_its_seed():
    drawn = np.random.RandomState(7).uniform(0, 1, DATA.shape)
    output, mask = kernels.dropout(DATA, np.array(0.3), np.array(True), rng=generator(7))
    np.testing.assert_array_equal(mask, drawn >= 0.3)
    np.testing.assert_allclose(output, DATA * mask / 0.7, rtol=1e-6)


@pytest.mark.parametrize("seed", [0.0, 5.0, None])
def test_a_seed_repeats_the_numbers(seed):
    set_seed(11)
    first = kernels.random_normal([100], rng=generator(seed))
    following = kernels.random_normal([100], rng=generator(seed))
    set_seed(11)
    again = kernels.random_normal([100], rng=generator(seed))
    np.testing.assert_array_equal(first, again)
    assert np.array_equal(first, following) is (seed is not None)
