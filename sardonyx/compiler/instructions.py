"""Instructions on values, as `builder` writes them: arithmetic, comparisons, conversions, vectors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from sardonyx.compiler.target import X86_LEVELS, Target
from sardonyx.compiler.types import BOOL, I32, Type
from sardonyx.compiler.values import Number, Value, literal, mangled

ATTRIBUTES = (
    'nounwind "no-builtins" "frame-pointer"="none" "no-trapping-math"="true" '
    '"min-legal-vector-width"="512" "prefer-vector-width"="512"'
)
"""Attributes of every function: it calls nothing, and its vectors are as wide as they are written."""

_FLOAT_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "rem": "frem"}
_INTEGER_OPS = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor", "shl": "shl"}
_SIGNED_OPS = {"div": "sdiv", "rem": "srem", "shr": "ashr"}
_UNSIGNED_OPS = {"div": "udiv", "rem": "urem", "shr": "lshr"}
_ORDERED = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}


class Instructions:
    """Arithmetic, comparisons, conversions and vectors: the part of a function being written that touches no memory."""

    def __init__(self, parameters: Sequence[tuple[str, Type]], *, target: Target | None = None):
        self._parameters = list(parameters)
        self.target = target
        """The CPU that the code is for; without one it may have all instructions that LLVM makes of it."""
        self._entry: list[str] = []
        self._lines: list[str] = []
        self._count = 0
        self._declared: dict[str, None] = {}
        self._block = "entry"
        self._contract = True

    def __getitem__(self, name: str) -> Value:
        return Value(self, next(type for parameter, type in self._parameters if parameter == name), f"%{name}")

    # --- writing

    @property
    def lines(self) -> int:
        """How many have been written."""
        return len(self._lines)

    @property
    def block(self) -> str:
        """Where the next line goes; another one after a branch."""
        return self._block

    def line(self, text: str) -> None:
        self._lines.append("  " + text)

    def emit(self, type: Type, text: str) -> Value:
        """An instruction that makes a value."""
        self._count += 1
        ref = f"%v{self._count}"
        self._lines.append(f"  {ref} = {text}")
        return Value(self, type, ref)

    def _label(self, hint: str) -> str:
        self._count += 1
        return f"{hint}{self._count}"

    def _begin(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self._block = label

    def text(self, name: str) -> str:
        """The module with this function in it."""
        parameters = ", ".join(f"{type} %{parameter}" for parameter, type in self._parameters)
        lines = [f"define void @{name}({parameters}) #0 {{", "entry:", *self._entry, *self._lines, "  ret void", "}"]
        lines += [*self._declared, f"attributes #0 = {{ {ATTRIBUTES} }}"]
        return "\n".join(lines) + "\n"

    # --- values

    def const(self, type: Type, number: Number) -> Value:
        text = literal(type, number)
        if type.lanes > 1:
            text = "zeroinitializer" if text in ("0", "false") else f"splat ({type.scalar} {text})"
        return Value(self, type, text)

    def as_value(self, operand: Value | Number, type: Type) -> Value:
        """A value of a type: numbers become constants, scalars are spread over the lanes of a vector."""
        if not isinstance(operand, Value):
            return self.const(type, operand)
        if operand.type.lanes == 1 and type.lanes > 1:
            operand = self.splat(operand, type.lanes)
        if operand.type is not type and str(operand.type) != str(type):
            raise TypeError(f"expected {type}, got {operand.type}")
        return operand

    def _pair(self, left: Value | Number, right: Value | Number) -> tuple[Value, Value]:
        types = [operand.type for operand in (left, right) if isinstance(operand, Value)]
        type = max(types, key=lambda type: type.lanes)
        return self.as_value(left, type), self.as_value(right, type)

    def binary(self, op: str, left: Value | Number, right: Value | Number) -> Value:
        a, b = self._pair(left, right)
        type = a.type
        if type.is_float:
            name = _FLOAT_OPS[op] + (" contract" if self._contract else "")
        elif op in _INTEGER_OPS:
            name = _INTEGER_OPS[op]
        else:
            name = (_SIGNED_OPS if type.is_signed else _UNSIGNED_OPS)[op]
        return self.emit(type, f"{name} {type} {a.ref}, {b.ref}")

    @contextlib.contextmanager
    def exact(self) -> Iterator[None]:
        """Inside, no product and sum are contracted to one rounding, unless `fma` says so."""
        before, self._contract = self._contract, False
        yield
        self._contract = before

    def compare(self, how: str, left: Value | Number, right: Value | Number) -> Value:
        a, b = self._pair(left, right)
        type = a.type
        if type.is_float:
            text = f"fcmp {_ORDERED[how]}"
        elif how in ("eq", "ne"):
            text = f"icmp {how}"
        else:
            text = f"icmp {'s' if type.is_signed else 'u'}{how}"
        return self.emit(BOOL.vector(type.lanes), f"{text} {type} {a.ref}, {b.ref}")

    def is_nan(self, value: Value) -> Value:
        return self.unordered(value, value)

    def unordered(self, left: Value, right: Value) -> Value:
        """Whether one of two floats is NaN, or both."""
        return self.emit(BOOL.vector(left.type.lanes), f"fcmp uno {left}, {right.ref}")

    def select(self, condition: Value, yes: Value | Number, no: Value | Number) -> Value:
        a, b = self._pair(yes, no)
        if condition.type.lanes > a.type.lanes:
            a, b = (self.splat(operand, condition.type.lanes) for operand in (a, b))
        return self.emit(a.type, f"select {condition}, {a}, {b}")

    def minimum(self, left: Value | Number, right: Value | Number) -> Value:
        """The smaller one. Of floats, the right one if any of them is NaN: a single instruction on most CPUs."""
        a, b = self._pair(left, right)
        return self.select(self.compare("lt", a, b), a, b)

    def maximum(self, left: Value | Number, right: Value | Number) -> Value:
        """The larger one. Of floats, the right one if any of them is NaN."""
        a, b = self._pair(left, right)
        return self.select(self.compare("gt", a, b), a, b)

    def intrinsic(self, name: str, type: Type, *operands: Value, overload: str | None = None) -> Value:
        """A call of an LLVM intrinsic whose name ends with its type: `intrinsic("sqrt", x.type, x)`."""
        full = f"llvm.{name}.{overload or mangled(type)}"
        self.declare(f"declare {type} @{full}({', '.join(str(operand.type) for operand in operands)})")
        return self.emit(type, f"call {type} @{full}({', '.join(map(str, operands))})")

    def declare(self, text: str) -> None:
        self._declared.setdefault(text)

    def fma(self, a: Value | Number, b: Value | Number, c: Value) -> Value:
        """a·b + c, in one rounding where the CPU has that; elsewhere in two. Integers wrap."""
        a, b = self.as_value(a, c.type), self.as_value(b, c.type)
        if c.type.is_integer:
            return a * b + c
        return self.intrinsic("fmuladd", c.type, a, b, c)

    def sqrt(self, x: Value) -> Value:
        return self.intrinsic("sqrt", x.type, x)

    def floor(self, x: Value) -> Value:
        if self._has_rounding:
            return self.intrinsic("floor", x.type, x)
        nearest = self.round_even(x)
        return self.select(nearest > x, nearest - 1.0, nearest)

    def ceil(self, x: Value) -> Value:
        if self._has_rounding:
            return self.intrinsic("ceil", x.type, x)
        nearest = self.round_even(x)
        return self.copysign(self.select(nearest < x, nearest + 1.0, nearest), x)

    def trunc(self, x: Value) -> Value:
        if self._has_rounding:
            return self.intrinsic("trunc", x.type, x)
        return self.copysign(self.floor(self.abs(x)), x)

    def round_even(self, x: Value) -> Value:
        """The nearest whole number; of two that are equally near, the even one."""
        if self._has_rounding:
            return self.intrinsic("roundeven", x.type, x)
        # next to a number this large there are only whole ones
        large = 2.0 ** (52 if x.type.bits == 64 else 23)
        magnitude = self.abs(x)
        with self.exact():
            rounded = (magnitude + large) - large
        return self.copysign(self.select(magnitude < large, rounded, magnitude), x)

    def nearest(self, x: Value) -> Value:
        """A float of 32 bits as the nearest int32, of two the even one. It must be in that type's range."""
        type = I32.vector(x.type.lanes)
        if self.target is not None and self.target.name in X86_LEVELS:
            return self.intrinsic("lrint", type, x, overload=f"{mangled(type)}.{mangled(x.type)}")
        return self.convert(self.round_even(x), I32)

    @property
    def saturates(self) -> bool:
        """Whether whole numbers of 32 bits are quickly limited and narrowed, and `nearest` gives the least for all that it cannot hold."""
        return self.target is not None and self.target.name in X86_LEVELS and self.target.rounding

    @property
    def _has_rounding(self) -> bool:
        return self.target is None or self.target.rounding

    def copysign(self, magnitude: Value, sign: Value) -> Value:
        """A number with another one's sign."""
        return self.intrinsic("copysign", magnitude.type, magnitude, sign)

    def abs(self, x: Value) -> Value:
        if x.type.is_float:
            return self.intrinsic("fabs", x.type, x)
        return self.select(x < 0, -x, x) if x.type.is_signed else x

    def bitcast(self, x: Value, type: Type) -> Value:
        """The same bits as another type of the same size."""
        if str(x.type) == str(type):
            return Value(self, type, x.ref)
        return self.emit(type, f"bitcast {x} to {type}")

    def convert(self, x: Value, to: Type) -> Value:
        """A value as another type, as C casts it; floats outside an integer's range give any value. `to` keeps x's lanes."""
        to = to.computed.vector(x.type.lanes)
        source = x.type
        if source == to:
            return x
        if to.kind == "bool":
            return self.compare("ne", x, 0)
        if source.is_float and to.is_float:
            return self.emit(to, f"{'fpext' if to.bits > source.bits else 'fptrunc'} {x} to {to}")
        if source.is_float:
            whole = self.emit(to, f"{'fptosi' if to.is_signed else 'fptoui'} {x} to {to}")
            return self.emit(to, f"freeze {whole}")
        if to.is_float:
            return self.emit(to, f"{'sitofp' if source.is_signed else 'uitofp'} {x} to {to}")
        if to.bits > source.bits:
            return self.emit(to, f"{'sext' if source.is_signed else 'zext'} {x} to {to}")
        if to.bits < source.bits:
            return self.emit(to, f"trunc {x} to {to}")
        return Value(self, to, x.ref)

    # --- vectors

    def splat(self, x: Value, lanes: int) -> Value:
        """A scalar in every lane."""
        if lanes == 1 or x.type.lanes == lanes:
            return x
        type = x.type.vector(lanes)
        first_lane = self.emit(type, f"insertelement {type} poison, {x}, i64 0")
        return self.emit(type, f"shufflevector {first_lane}, {type} poison, <{lanes} x i32> zeroinitializer")

    def iota(self, type: Type, lanes: int) -> Value:
        """0, 1, 2, …"""
        if lanes == 1:
            return self.const(type, 0)
        items = ", ".join(f"{type.scalar} {literal(type, lane)}" for lane in range(lanes))
        return Value(self, type.vector(lanes), f"<{items}>")

    def constants(self, type: Type, numbers: Sequence[Number]) -> Value:
        """A vector of given numbers."""
        items = ", ".join(f"{type.scalar} {literal(type, number)}" for number in numbers)
        return Value(self, type.vector(len(numbers)), f"<{items}>")

    def extract(self, x: Value, lane: int | Value) -> Value:
        if x.type.lanes == 1:
            return x
        return self.emit(x.type.scalar, f"extractelement {x}, i64 {lane.ref if isinstance(lane, Value) else lane}")

    def insert(self, x: Value, item: Value, lane: int) -> Value:
        return self.emit(x.type, f"insertelement {x}, {item}, i64 {lane}")

    def shuffle(self, x: Value, y: Value, lanes: Sequence[int]) -> Value:
        """A vector of lanes out of two: those of `x` come first, then those of `y`."""
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        return self.emit(x.type.vector(len(lanes)), f"shufflevector {x}, {y}, <{len(lanes)} x i32> <{mask}>")

    def any_lane(self, mask: Value) -> Value:
        """Whether a mask has one lane at least."""
        if mask.type.lanes == 1:
            return mask
        return self.bitcast(mask, Type("uint", mask.type.lanes)) != 0

    def reduce(self, how: str, x: Value) -> Value:
        """All lanes as one: add, mul, min, max, and, or. The order of float sums is LLVM's choice: halves are added."""
        while x.type.lanes > 1:
            half = x.type.lanes // 2
            low, high = self.shuffle(x, x, range(half)), self.shuffle(x, x, range(half, 2 * half))
            if half == 1:
                low, high = self.extract(x, 0), self.extract(x, 1)
            x = (
                {"min": self.minimum, "max": self.maximum}[how](low, high)
                if how in ("min", "max")
                else self.binary(how, low, high)
            )
        return x
