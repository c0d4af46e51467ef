"""Writes functions in LLVM's textual IR, shaped like the loops that they are.

    f = Function([("args", PTR), ("begin", I64), ("end", I64)])
    with f.loop(f["begin"], f["end"]) as i:
        f.store(f.load(x, i, F32) * 2.0, y, i, F32)
    f.text("double")

A `Value` is a typed SSA value with operators; Python numbers become constants of the other operand's type. A `Variable` can be set in
loops and branches (LLVM turns it into registers). Floats of 16 bits are loaded as float32 and rounded when they are stored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from sardonyx.compiler.storage import Storage
from sardonyx.compiler.types import F32, I64, Type
from sardonyx.compiler.values import Number, Value, Variable, mangled

__all__ = ["ElseBranch", "Function", "Number", "Value", "Variable", "WhileBody", "mangled"]


class Function(Storage):
    """A function being written. Its parameters are `f["name"]`; `text(name)` is the finished module."""

    def variable(self, value: Value | Number, type: Type | None = None) -> Variable:
        type = type or (value.type if isinstance(value, Value) else F32)
        self._count += 1
        ref = f"%s{self._count}"
        self._entry.append(f"  {ref} = alloca {type}")
        variable = Variable(self, type, ref)
        variable.set(value)
        return variable

    @contextlib.contextmanager
    def loop(self, start: Value | int, stop: Value | int, step: Value | int = 1) -> Iterator[Value]:
        """Count from `start` while below `stop`."""
        start, stop = self.as_value(start, I64), self.as_value(stop, I64)
        head, body, done = self._label("loop"), self._label("body"), self._label("done")
        before = self._block
        self.line(f"br label %{head}")
        self._begin(head)
        place = len(self._lines)
        self._count += 1
        index = Value(self, I64, f"%i{self._count}")
        more = self.compare("lt", index, stop)
        self.line(f"br {more}, label %{body}, label %{done}")
        self._begin(body)
        yield index
        following = index + step
        self._lines.insert(place, f"  {index.ref} = phi i64 [ {start.ref}, %{before} ], [ {following.ref}, %{self._block} ]")
        self.line(f"br label %{head}")
        self._begin(done)

    @contextlib.contextmanager
    def while_(self) -> Iterator[WhileBody]:
        """Repeat until `body.leave_if(condition)` holds."""
        head, done = self._label("while"), self._label("left")
        self.line(f"br label %{head}")
        self._begin(head)
        yield WhileBody(self, done)
        self.line(f"br label %{head}")
        self._begin(done)

    @contextlib.contextmanager
    def if_(self, condition: Value) -> Iterator[None]:
        yes, done = self._label("then"), self._label("end")
        self.line(f"br {condition}, label %{yes}, label %{done}")
        self._begin(yes)
        yield
        self.line(f"br label %{done}")
        self._begin(done)

    @contextlib.contextmanager
    def if_else(self, condition: Value) -> Iterator[ElseBranch]:
        """`with f.if_else(c) as otherwise: … ; otherwise(); …`: what follows the call of `otherwise` is the other branch."""
        yes, no, done = self._label("then"), self._label("else"), self._label("end")
        self.line(f"br {condition}, label %{yes}, label %{no}")
        self._begin(yes)
        branch = ElseBranch(self, no, done)
        yield branch
        if not branch.begun:
            branch()
        self.line(f"br label %{done}")
        self._begin(done)

    def side_by_side(self, count: int, emit: Callable[[int], None], skew: int) -> None:
        """Emit code without branches several times, the lines of all in turn, each `skew` lines behind the one before.

        A CPU looks some dozens of instructions ahead. Here it finds some there that do not wait for each other.
        """
        copies: list[list[str]] = []
        for number in range(count):
            before, block = len(self._lines), self._block
            emit(number)
            if self._block != block:
                raise ValueError("code with branches cannot stand side by side")
            copies.append(self._lines[before:])
            del self._lines[before:]
        for turn in range(max(len(lines) + skew * number for number, lines in enumerate(copies))):
            for number, lines in enumerate(copies):
                if 0 <= turn - skew * number < len(lines):
                    self._lines.append(lines[turn - skew * number])

    def call(self, target: Value, *operands: Value) -> None:
        """Call a function that returns nothing, by its address."""
        self.line(f"call void {target.ref}({', '.join(map(str, operands))})")


class WhileBody:
    def __init__(self, f: Function, done: str):
        self._f = f
        self._done = done

    def leave_if(self, condition: Value) -> None:
        f = self._f
        on = f._label("on")
        f.line(f"br {condition}, label %{self._done}, label %{on}")
        f._begin(on)


class ElseBranch:
    def __init__(self, f: Function, label: str, done: str):
        self._f = f
        self._label = label
        self._done = done
        self.begun = False

    def __call__(self) -> None:
        self.begun = True
        self._f.line(f"br label %{self._done}")
        self._f._begin(self._label)
