"""NonMaxSuppression. How many boxes it keeps depends on data, so it is no part of a cluster: the provider makes it a step of its own."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.compiler.builder import Value as Code
from sardonyx.compiler.jit import Jit
from sardonyx.compiler.pool import ARGUMENTS, GRAIN, KERNEL, STEP_WORDS, TOTAL, pool
from sardonyx.compiler.types import F32, I32, I64
from sardonyx.ir import Node
from sardonyx.optimizer.matching import operand
from sardonyx.providers.cpu.selection import corners_of, non_max_suppression
from sardonyx.providers.native.kernel import KernelFunction, kernel
from sardonyx.providers.native.lowering import element_of
from sardonyx.providers.provider import Cluster

MOST_KEPT = 1 << 22
"""Boxes for which room is made; beyond, NumPy computes."""
DEAD = -math.inf
"""The score of a box that is dropped."""


def claims_suppression(node: Node) -> bool:
    return node.op_type == "NonMaxSuppression" and all(
        value is not None and element_of(value) == F32 for value in node.inputs[:2]
    )


class Suppression:
    """The step of one node: called with the values of its inputs that are not constant."""

    def __init__(self, cluster: Cluster, jit: Jit, threads: int):
        (self._node,) = cluster.nodes
        self._places = {value: place for place, value in enumerate(cluster.inputs)}
        self._threads = threads
        self._address = jit.addresses([suppress_kernel(jit.target)])[0]

    def __call__(self, inputs: Sequence[Any]) -> list[np.ndarray]:
        names = ("max_output_boxes_per_class", "iou_threshold", "score_threshold")
        values: list[Any] = [None if value is None else self._value(value, inputs) for value in self._node.inputs]
        boxes, scores, *rest = values
        given: dict[str, Any] = dict(zip(names, rest))
        center = int(operand(self._node, "center_point_box") or 0)
        limit = 0 if given.get(names[0]) is None else int(np.reshape(given[names[0]], -1)[0])
        limit = min(limit, scores.shape[2])
        overlap, threshold = (None if given.get(name) is None else float(np.reshape(given[name], ())) for name in names[1:])
        room = scores.shape[0] * scores.shape[1] * limit
        is_usual = 0 < room <= MOST_KEPT and 0 <= (overlap or 0) <= 1 and np.isfinite(scores.min()) and np.isfinite(boxes).all()
        if not is_usual:
            return [non_max_suppression(boxes, scores, **given, center_point_box=center)]  # type: ignore[no-untyped-call]
        corners = corners_of(boxes, center)  # type: ignore[no-untyped-call]
        return [
            self._select(corners, np.ascontiguousarray(scores), limit, overlap or 0.0, DEAD if threshold is None else threshold)
        ]

    def _value(self, value: Any, inputs: Sequence[Any]) -> Any:
        return inputs[self._places[value]] if value in self._places else value.constant.numpy()

    def _select(self, corners: np.ndarray, scores: np.ndarray, limit: int, overlap: float, threshold: float) -> np.ndarray:
        images, labels, count = scores.shape
        rows = images * labels
        sides = np.empty((5, images, count), np.float32)
        sides[:4] = np.moveaxis(corners, -1, 0)
        with np.errstate(all="ignore"):
            np.multiply(sides[2] - sides[0], sides[3] - sides[1], out=sides[4])
        work, kept, counts = np.empty((rows, count), np.float32), np.empty((rows, limit), np.int64), np.zeros(rows, np.int64)
        numbers = np.array([images, labels, count, limit], np.int64)
        floats = np.array([overlap, threshold], np.float64).view(np.int64)
        pointers = [array.ctypes.data for array in (sides, scores, work, kept, counts)]
        arguments = np.array([*pointers, *numbers, *floats], np.int64)
        step = np.zeros(STEP_WORDS, np.int64)
        step[[KERNEL, ARGUMENTS, TOTAL, GRAIN]] = [self._address, arguments.ctypes.data, rows, 1]
        stop, workers = ctypes.c_int64(0), pool()
        workers.run(step.ctypes.data, 1, workers.address, self._threads, ctypes.addressof(stop))
        row = np.repeat(np.arange(rows), counts)
        chosen = kept[np.arange(limit) < counts[:, np.newaxis]]
        return np.column_stack([row // max(1, labels), row % max(1, labels), chosen])


@kernel("suppress")
def suppress_kernel(f: KernelFunction) -> None:
    """Items are classes of images. One pass drops what overlaps the box that was kept last, and finds the best of the rest."""
    sides, scores, work, kept, counts = (f.pointer() for _ in range(5))
    images, labels, count, limit = (f.size() for _ in range(4))
    overlap, threshold = f.number(F32), f.number(F32)
    lanes = f.lanes(F32)
    with f.exact(), f.loop(f.begin, f.end) as item:
        line, mine = (f.address(one, item * count, F32) for one in (scores, work))
        result = f.address(kept, item * limit, I64)
        planes = [f.address(sides, (images * number + item // labels) * count, F32) for number in range(5)]

        def best_of(score: object) -> tuple[Code, Code]:
            """Write scores, and find the highest and where it stands first."""
            assert callable(score)
            high, place = f.variable(f.const(F32.vector(lanes), DEAD)), f.variable(f.const(I32.vector(lanes), -1))
            with f.loop(0, count, lanes) as start:
                value = score(start, count - start)
                f.store(value, mine, start, F32, remaining=count - start)
                value = f.select(f.first_lanes(count - start, lanes), value, DEAD)
                better = value > high.get()
                number = f.iota(I32, lanes) + f.splat(f.convert(start, I32), lanes)
                place.set(f.select(better, number, place.get()))
                high.set(f.select(better, value, high.get()))
            top = f.reduce("max", high.get())
            first = f.select(high.get() == f.splat(top, lanes), place.get(), (1 << 31) - 1)
            return top, f.convert(f.reduce("min", first), I64)

        def admitted(start: Code, remaining: Code) -> Code:
            value = f.load(line, start, F32, lanes, remaining=remaining)
            return f.select(value > f.splat(threshold, lanes), value, DEAD)

        top, place = (f.variable(one) for one in best_of(admitted))
        number = f.variable(0, I64)
        with f.while_() as body:
            body.leave_if((number.get() >= limit) | (top.get() == DEAD))
            f.store(place.get(), result, number.get(), I64)
            number.set(number.get() + 1)
            f.store(DEAD, mine, place.get(), F32)
            chosen = [f.splat(f.load(plane, place.get(), F32), lanes) for plane in planes]

            def left_over(start: Code, remaining: Code, chosen: list[Code] = chosen) -> Code:
                value = f.load(mine, start, F32, lanes, remaining=remaining)
                left, low, right, high, area = (f.load(one, start, F32, lanes, remaining=remaining) for one in planes)
                wide = f.maximum(f.minimum(chosen[2], right) - f.maximum(chosen[0], left), 0.0)
                tall = f.maximum(f.minimum(chosen[3], high) - f.maximum(chosen[1], low), 0.0)
                shared = wide * tall
                real = (chosen[4] > 0.0) & (area > 0.0)
                union = f.select(real, chosen[4] + area - shared, 1.0)
                return f.select(real & (shared / union > f.splat(overlap, lanes)), DEAD, value)

            following = best_of(left_over)
            top.set(following[0])
            place.set(following[1])
        f.store(number.get(), counts, item, I64)
