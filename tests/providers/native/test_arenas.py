"""Arenas that programs share: as large as the largest run, and never lent twice at a time."""

from __future__ import annotations

import threading

import numpy as np

import sardonyx
from sardonyx.providers.native.execution.arenas import Arenas
from sardonyx.providers.native.execution.compiled import CompiledProgram
from sardonyx.runtime.preparation.plan import all_steps
from tests.runtime.models import parsed

PRODUCTS = "g (float[N,{width}] x, float[{width},{width}] w) => (float[N,{width}] y) {{ a = MatMul(x, w) b = Relu(a) y = MatMul(b, w) }}"


class Sharing:
    """A session of two products with a buffer between them, whose programs borrow."""

    def __init__(self, width: int, arenas: Arenas):
        self.width = width
        self.session = sardonyx.InferenceSession(parsed(PRODUCTS.format(width=width)))
        self.programs = [step.call for step in all_steps(self.session._engine.plan) if isinstance(step.call, CompiledProgram)]
        for program in self.programs:
            program.share(arenas)

    def check(self, rows: int, seed: int = 0) -> None:
        generator = np.random.default_rng(seed)
        x, w = (generator.standard_normal((length, self.width), np.float32) for length in (rows, self.width))
        wanted = np.maximum(x.astype(np.float64) @ w, 0) @ w
        np.testing.assert_allclose(
            self.session.run(None, {"x": x, "w": w})[0], wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max()
        )


def test_programs_that_run_in_turns_share_one_arena() -> None:
    arenas = Arenas()
    small, large = Sharing(32, arenas), Sharing(96, arenas)
    small.check(40)
    first = arenas.nbytes
    large.check(40)
    second = arenas.nbytes
    assert 0 < first < second
    for seed in range(3):
        small.check(40, seed)
        large.check(40, seed)
        assert arenas.nbytes == second
    assert all(not state.arena.nbytes for one in (small, large) for program in one.programs for state in program._idle)


def test_other_sizes_and_another_arena_lay_out_the_run_anew() -> None:
    arenas = Arenas()
    one = Sharing(48, arenas)
    for rows in (3, 200, 3, 200):
        one.check(rows)
        held = arenas.lend(1)  # the next run has to take another
        one.check(rows)
        arenas.take_back(held)


def test_runs_at_the_same_time_have_arenas_of_their_own() -> None:
    arenas = Arenas()
    sessions = [Sharing(64, arenas) for _ in range(4)]
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for seed in range(20):
                sessions[(number + seed) % 4].check(50 + seed, seed)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_shared_arenas_can_be_given_back() -> None:
    arenas = Arenas()
    one = Sharing(48, arenas)
    one.check(10)
    assert arenas.nbytes
    one.programs[0].shrink()
    assert not arenas.nbytes
    one.check(10)
