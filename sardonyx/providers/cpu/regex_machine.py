"""A matcher that takes time in proportion to the text, whatever the pattern: for the text kernels, through `re2.py`.

All places of the program at which a text may stand are followed at once (Thompson's construction); sets of them that have come before
are states of an automaton, made as texts need them and given up when there are too many. See Russ Cox, "Regular Expression Matching
Can Be Simple And Fast", 2007.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from sardonyx.providers.cpu import regex_sets
from sardonyx.providers.cpu.regex_sets import contains
from sardonyx.providers.cpu.regex_syntax import Assert, Code, Jump, Place, Split, Take

MAX_HELD = 100_000
"""So many places in all states are kept."""
ATTEMPTS = 16
"""While spans are looked for, as many characters may be read for each of the text; then another way is gone."""


class Kind(enum.IntEnum):
    """What assertions want to know of the character on either side."""

    NONE = 0
    NEWLINE = 1
    WORD = 2
    OTHER = 3


class State:
    """Places of the program, right after a character of some kind."""

    __slots__ = ("places", "before", "next", "accepts")

    def __init__(self, places: frozenset[int], before: Kind):
        self.places = places
        self.before = before
        self.next: dict[int, State] = {}
        self.accepts: dict[Kind, bool] = {}


class Machine:
    """A program, ready to be run on texts. `steps` counts the work done so far."""

    def __init__(self, code: Code):
        self.code = code
        self.end = len(code)
        self.steps = 0
        self._asserts = any(isinstance(instruction, Assert) for instruction in code)
        bounds = {
            bound
            for instruction in code
            if isinstance(instruction, Take)
            for low, high in instruction.characters
            for bound in (low, high + 1)
        }
        if self._asserts:
            bounds |= {bound for low, high in ((10, 10), *regex_sets.PERL["w"]) for bound in (low, high + 1)}
        self._bounds = sorted(bounds | {0})
        self._classes: dict[str, int] = {}
        self._states: dict[tuple[frozenset[int], Kind], State] = {}
        self._held = 0
        self.table: Any = False
        """All states at once, for many texts: False before it is made, None where there are too many states."""

    def fullmatch(self, text: str) -> bool:
        """Whether the whole text matches."""
        self.steps += len(text)
        classes, state = self._classes, self._start(Kind.NONE)
        for character in text:
            number = classes.get(character)
            if number is None:
                number = self._class(character)
            following = state.next.get(number)
            state = self._follow(state, number) if following is None else following
            if not state.places:
                return False
        return self._accepts(state, Kind.NONE)

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """The longest matches one after the other, from the left; empty ones are passed over."""
        first, allowed = 0, self.steps + ATTEMPTS * (len(text) + len(self.code) + 64)
        ends: list[int] | None = None
        while first < len(text):
            if ends is None and self.steps > allowed:
                ends = self._all_ends(text)
            last = self._longest(text, first) if ends is None else ends[first]
            if last > first:
                yield first, last
            first = max(last, first + 1)

    # --- the automaton

    def _longest(self, text: str, first: int) -> int:
        """Where the longest match that begins somewhere ends, -1 if there is none."""
        state, last = self._start(self._kind(text, first - 1)), -1
        for at in range(first, len(text) + 1):
            if self._accepts(state, self._kind(text, at)):
                last = at
            if at == len(text):
                break
            self.steps += 1
            number = self._class(text[at])
            state = state.next.get(number) or self._follow(state, number)
            if not state.places:
                break
        return last

    def _class(self, character: str) -> int:
        """The number of the characters that no set of the program tells from this one."""
        number = self._classes.get(character)
        if number is None:
            number = self._classes[character] = bisect_right(self._bounds, ord(character)) - 1
        return number

    def _kind(self, text: str, at: int) -> Kind:
        """What assertions see at a position of a text."""
        if not self._asserts or not 0 <= at < len(text):
            return Kind.NONE
        return _kind_of(ord(text[at]))

    def _start(self, before: Kind) -> State:
        return self._state(frozenset((0,)), before)

    def _state(self, places: frozenset[int], before: Kind) -> State:
        key = places, before if self._asserts else Kind.NONE
        state = self._states.get(key)
        if state is None:
            if self._held > MAX_HELD:
                self._forget()
            self._held += len(places) + 1
            state = self._states.setdefault(key, State(*key))
        return state

    def _forget(self) -> None:
        """Begin anew with states, so that few texts cannot fill the memory."""
        for state in list(self._states.values()):
            state.next = {}
        self._states, self._held = {}, 0

    def _follow(self, state: State, number: int) -> State:
        """The state after a character of a class."""
        code = self._bounds[number]
        kind = _kind_of(code) if self._asserts else Kind.NONE
        takes, _ = self._expand(state.places, state.before, kind)
        places = frozenset(place + 1 for place in takes if contains(self.code[place].characters, code))  # type: ignore[union-attr]
        following = self._state(places, kind)
        state.next[number] = following
        return following

    def _accepts(self, state: State, after: Kind) -> bool:
        accepts = state.accepts.get(after)
        if accepts is None:
            accepts = state.accepts[after] = self._expand(state.places, state.before, after)[1]
        return accepts

    def _expand(self, places: frozenset[int], before: Kind, after: Kind) -> tuple[list[int], bool]:
        """The characters that can be taken next, by their places, and whether the end is reached."""
        reached, stack, takes = set(places), list(places), []
        while stack:
            place = stack.pop()
            self.steps += 1
            if place == self.end:
                continue
            instruction = self.code[place]
            if isinstance(instruction, Take):
                takes.append(place)
            targets = _targets(place, instruction) if self._passes(place, before, after) else []
            for target in targets:
                if target not in reached:
                    reached.add(target)
                    stack.append(target)
        return takes, self.end in reached

    # --- all ends at once

    def _all_ends(self, text: str) -> list[int]:
        """Where the longest match from each position ends, -1 if none begins there: from the back, once over the text."""
        takes = [
            (place, instruction.characters) for place, instruction in enumerate(self.code) if isinstance(instruction, Take)
        ]
        sources = self._sources()
        ends, later = [-1] * (len(text) + 1), dict[int, int]()
        for at in range(len(text), -1, -1):
            code = ord(text[at]) if at < len(text) else -1
            reached = [
                (later[place + 1], place) for place, characters in takes if place + 1 in later and contains(characters, code)
            ]
            before, after = self._kind(text, at - 1), self._kind(text, at)
            later = self._furthest([*sorted(reached, reverse=True), (at, self.end)], sources, before, after)
            ends[at] = later.get(0, -1)
        return ends

    def _furthest(self, reached: list[tuple[int, int]], sources: list[list[int]], before: Kind, after: Kind) -> dict[int, int]:
        """How far a match can go from each place, if it goes so far from these: the furthest come first."""
        starts: dict[int, int] = {}
        for last, start in reached:
            stack = [start]
            while stack:
                place = stack.pop()
                if place in starts:
                    continue
                starts[place] = last
                self.steps += 1
                stack += [source for source in sources[place] if source not in starts and self._passes(source, before, after)]
        return starts

    def _passes(self, place: int, before: Kind, after: Kind) -> bool:
        instruction = self.code[place]
        return not isinstance(instruction, Assert) or _holds(instruction.place, before, after)

    def _sources(self) -> list[list[int]]:
        """From which places each one is reached without a character."""
        sources: list[list[int]] = [[] for _ in range(self.end + 1)]
        for place, instruction in enumerate(self.code):
            for target in _targets(place, instruction):
                sources[target].append(place)
        return sources


def _targets(place: int, instruction: Take | Split | Jump | Assert) -> list[int]:
    """Where it goes on from a place without a character, if what is asserted there holds."""
    match instruction:
        case Split(first, second):
            return [place + first, place + second]
        case Jump(by):
            return [place + by]
        case Assert():
            return [place + 1]
    return []


def _kind_of(code: int) -> Kind:
    if code == 10:
        return Kind.NEWLINE
    return Kind.WORD if contains(regex_sets.PERL["w"], code) else Kind.OTHER


def _holds(wanted: Place, before: Kind, after: Kind) -> bool:
    match wanted:
        case Place.TEXT_START:
            return before is Kind.NONE
        case Place.TEXT_END:
            return after is Kind.NONE
        case Place.LINE_START:
            return before in (Kind.NONE, Kind.NEWLINE)
        case Place.LINE_END:
            return after in (Kind.NONE, Kind.NEWLINE)
    is_boundary = (before is Kind.WORD) != (after is Kind.WORD)
    return is_boundary == (wanted is Place.BOUNDARY)
