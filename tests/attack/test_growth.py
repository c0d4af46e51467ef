"""Random graphs hold no nodes that a session refuses for what their constants are."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.attack.growth import Grower, Refused


def test_no_node_grows_that_is_refused_once_its_operands_are_constant() -> None:
    """A run takes a scale below 0 that it is fed; a session refuses a constant one, also one that it computes of constants."""
    g = Grower(random.Random(0), opset=21)
    x = g.fresh(np.float32, (2, 3))
    g.apply("QuantizeLinear", x=x, y_scale=np.float32(0.5))
    with pytest.raises(Refused):
        g.apply("QuantizeLinear", x=x, y_scale=np.float32(-0.5))
