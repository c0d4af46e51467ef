"""Structures that kernels derive from constant operands (node tables, unpacked weights), made once per set of operands.

Kernels stay functions without state of their own; what `prepared` remembers is bounded and only ever saves time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from sardonyx.startup.locks import Lock

Result = TypeVar("Result")

CAPACITY = 1 << 29
"""How many bytes of results are remembered; the one not used for longest goes first."""

_kept: OrderedDict[tuple[Any, ...], tuple[tuple[Any, ...], Any, int]] = OrderedDict()
_lock = Lock()


def prepared(make: Callable[..., Result], *operands: Any, size: int = 1 << 16) -> Result:
    """`make(*operands)`, remembered by the identity of the operands: attributes, or inputs that are `unchanging`.

    `size` is about how many bytes the result takes.
    """
    key = (make, *map(id, operands))
    try:  # without the lock, which a run on a small model would feel
        _kept.move_to_end(key)
        stored: Result = _kept[key][1]
        return stored
    except KeyError:
        result = make(*operands)
    with _lock:
        _kept[key] = (operands, result, size)  # holding the operands keeps their ids from being given to others
        total = sum(kept[2] for kept in _kept.values())
        while total > CAPACITY:
            total -= _kept.popitem(last=False)[1][2]
    return result


def unchanging(*arrays: np.ndarray | None) -> bool:
    """Whether nobody can write into these arrays, as is the case for the weights of a loaded model."""
    return not any(array is not None and array.flags.writeable for array in arrays)
