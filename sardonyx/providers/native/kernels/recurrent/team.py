"""Threads that share each turn of a recurrence: one leads from turn to turn, others help with the pieces of the turn that is open.

The leader can do everything alone and never waits for a helper that has not come; so a helper may come late or never, and a thread that
does the items of both one after the other finds nothing left to help with. `loop` emits the turns of its steps into this.
"""

from __future__ import annotations

import platform
from collections.abc import Callable

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import BOOL, I64
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size
from sardonyx.providers.native.program.kernel import KernelFunction

MEMBERS = 2
"""How many threads may share a recurrence."""
LINE = 8
"""Words of a cache line; what different threads write keeps this distance."""
PATIENCE = 2000
"""How often a leader looks in vain for the end of a turn before it goes on without helpers. The system has then put a helper to sleep
inside a piece; on such a busy machine that would happen again."""
_TURN, _DONE, _CLAIMS = 0, LINE, 2 * LINE
_PAUSE = {"x86_64": "llvm.x86.sse2.pause", "AMD64": "llvm.x86.sse2.pause"}.get(platform.machine())


def team_words(pieces: Dim) -> Dim:
    """How many words a team needs to agree; they must be 0 before anyone comes."""
    return _CLAIMS + dim.ceildiv(pieces, LINE) * LINE


class TeamArguments(Arguments):
    words: Pointer
    """The words of all teams."""
    team_words: Size
    """How many words a team has."""
    pieces: Size
    """Pieces of a turn."""
    members: Size
    swings: Size
    """1 if a leader without helpers swings to and fro, else 0."""


class Team:
    """The words of one team in a kernel. Turns count from 1; each has the same number of pieces, which any member may do.

    A turn opens when all pieces of the turn before are done. A member claims a piece by writing the number of the turn into its word.
    """

    def __init__(self, f: KernelFunction, a: TeamArguments, team: Value):
        self.f = f
        self.a = a
        self._words = f.address(a.words, team * a.team_words, I64)

    def run(
        self,
        leads: Value,
        last: Value,
        is_stopped: Callable[[], Value],
        begin: Callable[[Value], None],
        work: Callable[[Value, Value], None],
    ) -> None:
        """Go through the turns up to `last`: as the leader, or as a helper until the leader has no more, or `is_stopped()`.

        Each member begins a turn with `begin(turn)`; `work(turn, piece)` does one piece. Helpers take pieces from the last one down, so
        that each member mostly meets the same ones, whose weights are in its own cache. A leader without helpers may swing
        to and fro, for what it had last in one turn is near in the next.
        """
        f = self.f
        turn, alone = f.variable(0, I64), f.variable(False, BOOL)
        with f.while_() as life:
            with f.if_else(leads) as otherwise:
                following = turn.get() + 1
                turn.set(f.select((following > last) | is_stopped(), -1, following))
                self._set(_TURN, f.select(alone.get(), -1, turn.get()))
                otherwise()
                self._wait(lambda: self._get(_TURN) != turn.get())
                turn.set(self._get(_TURN))
            life.leave_if(turn.get() < 0)
            begin(turn.get())
            with f.loop(0, self.a.pieces) as count:
                forward = leads & ((self.a.members > 1) | (turn.get() & self.a.swings == 0))
                piece = f.select(forward, count, self.a.pieces - 1 - count)
                with f.if_(self._claim(piece, turn.get())):
                    work(turn.get(), piece)
                    with f.if_(self.a.members > 1):
                        f.emit(I64, f"atomicrmw add {f.address(self._words, _DONE, I64)}, i64 1 acq_rel, align 8")
            with f.if_(leads & (self.a.members > 1)):
                waited = self._wait(lambda: self._get(_DONE) >= turn.get() * self.a.pieces)
                alone.set(alone.get() | (waited > PATIENCE))

    def _wait(self, condition: Callable[[], Value]) -> Value:
        """Spin until a condition holds; returns how often it did not."""
        f = self.f
        spins = f.variable(0, I64)
        with f.while_() as waiting:
            waiting.leave_if(condition())
            self._pause()
            spins.set(spins.get() + 1)
        return spins.get()

    def _claim(self, piece: Value, turn: Value) -> Value:
        """Whether a piece is ours: nobody has taken it in this turn. Looked at before it is locked, for that costs more; and a leader
        without helpers locks nothing, for loads wait for a lock that could be on their way.
        """
        f = self.f
        place = f.address(self._words, piece + _CLAIMS, I64)
        mine = f.variable(self.a.members <= 1)
        with f.if_(self.a.members > 1), f.if_(f.emit(I64, f"load atomic i64, {place} monotonic, align 8") < turn):
            pair = f.emit(I64, f"cmpxchg {place}, {turn - 1}, i64 {turn.ref} acq_rel acquire, align 8")
            mine.set(f.emit(BOOL, f"extractvalue {{ i64, i1 }} {pair.ref}, 1"))
        return mine.get()

    def _get(self, word: int) -> Value:
        return self.f.emit(I64, f"load atomic i64, {self.f.address(self._words, word, I64)} acquire, align 8")

    def _set(self, word: int, value: Value) -> None:
        self.f.line(f"store atomic {value}, {self.f.address(self._words, word, I64)} release, align 8")

    def _pause(self) -> None:
        if _PAUSE:
            self.f.declare(f"declare void @{_PAUSE}()")
            self.f.line(f"call void @{_PAUSE}()")
