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
import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from sardonyx.compiler.target import Target
from sardonyx.compiler.types import BF16, BOOL, F32, F64, I32, I64, PTR, Type

Number = int | float | bool

ATTRIBUTES = (
    'nounwind "no-builtins" "frame-pointer"="none" "no-trapping-math"="true" '
    '"min-legal-vector-width"="512" "prefer-vector-width"="512"'
)
"""Of every function: nothing outside it is called, vectors are as wide as they are written."""


class Value:
    """One SSA value of a function being written."""

    __slots__ = ("f", "type", "ref")

    def __init__(self, f: Function, type: Type, ref: str):
        self.f = f
        self.type = type
        self.ref = ref

    def __str__(self) -> str:
        return f"{self.type} {self.ref}"

    def __add__(self, other: Any) -> Value:
        return self.f.binary("add", self, other)

    def __radd__(self, other: Any) -> Value:
        return self.f.binary("add", other, self)

    def __sub__(self, other: Any) -> Value:
        return self.f.binary("sub", self, other)

    def __rsub__(self, other: Any) -> Value:
        return self.f.binary("sub", other, self)

    def __mul__(self, other: Any) -> Value:
        return self.f.binary("mul", self, other)

    def __rmul__(self, other: Any) -> Value:
        return self.f.binary("mul", other, self)

    def __truediv__(self, other: Any) -> Value:
        return self.f.binary("div", self, other)

    def __rtruediv__(self, other: Any) -> Value:
        return self.f.binary("div", other, self)

    def __floordiv__(self, other: Any) -> Value:
        """Of integers, toward zero, as C has it; who may divide by zero asks first."""
        return self.f.binary("div", self, other)

    def __mod__(self, other: Any) -> Value:
        """The remainder with the dividend's sign."""
        return self.f.binary("rem", self, other)

    def __and__(self, other: Any) -> Value:
        return self.f.binary("and", self, other)

    def __rand__(self, other: Any) -> Value:
        return self.f.binary("and", other, self)

    def __or__(self, other: Any) -> Value:
        return self.f.binary("or", self, other)

    def __ror__(self, other: Any) -> Value:
        return self.f.binary("or", other, self)

    def __xor__(self, other: Any) -> Value:
        return self.f.binary("xor", self, other)

    def __lshift__(self, other: Any) -> Value:
        return self.f.binary("shl", self, other)

    def __rshift__(self, other: Any) -> Value:
        """Arithmetic for signed, logical for unsigned integers."""
        return self.f.binary("shr", self, other)

    def __invert__(self) -> Value:
        return self.f.binary("xor", self, True if self.type.kind == "bool" else -1)

    def __neg__(self) -> Value:
        if self.type.is_float:
            return self.f.emit(self.type, f"fneg {self}")
        return self.f.binary("sub", 0, self)

    def __lt__(self, other: Any) -> Value:
        return self.f.compare("lt", self, other)

    def __le__(self, other: Any) -> Value:
        return self.f.compare("le", self, other)

    def __gt__(self, other: Any) -> Value:
        return self.f.compare("gt", self, other)

    def __ge__(self, other: Any) -> Value:
        return self.f.compare("ge", self, other)

    def __eq__(self, other: Any) -> Value:  # type: ignore[override]
        return self.f.compare("eq", self, other)

    def __ne__(self, other: Any) -> Value:  # type: ignore[override]
        return self.f.compare("ne", self, other)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise TypeError("a value of generated code is not known yet; use f.select or f.if_")


class Variable:
    """A place for a value that changes in loops or branches."""

    __slots__ = ("f", "type", "_slot")

    def __init__(self, f: Function, type: Type, slot: str):
        self.f = f
        self.type = type
        self._slot = slot

    def get(self) -> Value:
        return self.f.emit(self.type, f"load {self.type}, ptr {self._slot}")

    def set(self, value: Value | Number) -> None:
        self.f.line(f"store {self.f.as_value(value, self.type)}, ptr {self._slot}")


_FLOAT_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "rem": "frem"}
_INTEGER_OPS = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor", "shl": "shl"}
_SIGNED_OPS = {"div": "sdiv", "rem": "srem", "shr": "ashr"}
_UNSIGNED_OPS = {"div": "udiv", "rem": "urem", "shr": "lshr"}
_ORDERED = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}


class Function:
    """A function being written. Its parameters are `f["name"]`; `text(name)` is the finished module."""

    def __init__(self, parameters: Sequence[tuple[str, Type]], returns: Type | None = None, *, target: Target | None = None):
        self._parameters = list(parameters)
        self._returns = returns
        self.target = target
        """The CPU that the code is for; without one it may have all instructions that LLVM makes of it."""
        self._entry: list[str] = []
        self._lines: list[str] = []
        self._count = 0
        self._declared: dict[str, None] = {}
        self._block = "entry"
        self._contract = True

    def __getitem__(self, name: str) -> Value:
        return Value(self, next(type for given, type in self._parameters if given == name), f"%{name}")

    # --- writing

    @property
    def lines(self) -> int:
        """How many have been written."""
        return len(self._lines)

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
        returns = "void" if self._returns is None else str(self._returns)
        parameters = ", ".join(f"{type} %{given}" for given, type in self._parameters)
        lines = [f"define {returns} @{name}({parameters}) #0 {{", "entry:", *self._entry, *self._lines]
        if self._returns is None:
            lines.append("  ret void")
        lines += ["}", *self._declared, f"attributes #0 = {{ {ATTRIBUTES} }}"]
        return "\n".join(lines) + "\n"

    def ret(self, value: Value) -> None:
        self.line(f"ret {value}")

    # --- values

    def const(self, type: Type, number: Number) -> Value:
        one = _literal(type, number)
        if type.lanes > 1:
            one = "zeroinitializer" if one in ("0", "false") else f"splat ({type.scalar} {one})"
        return Value(self, type, one)

    def as_value(self, operand: Value | Number, type: Type) -> Value:
        """A value of a type: numbers become constants, scalars are spread over the lanes of a vector."""
        if not isinstance(operand, Value):
            return self.const(type, operand)
        if operand.type.lanes == 1 and type.lanes > 1:
            operand = self.splat(operand, type.lanes)
        if str(operand.type) != str(type):
            raise TypeError(f"expected {type}, got {operand.type}")
        return operand

    def _pair(self, left: Value | Number, right: Value | Number) -> tuple[Value, Value]:
        types = [operand.type for operand in (left, right) if isinstance(operand, Value)]
        type = max(types, key=lambda one: one.lanes)
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
            a, b = (self.splat(one, condition.type.lanes) for one in (a, b))
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
        self.declare(f"declare {type} @{full}({', '.join(str(one.type) for one in operands)})")
        return self.emit(type, f"call {type} @{full}({', '.join(map(str, operands))})")

    def declare(self, text: str) -> None:
        self._declared.setdefault(text)

    def fma(self, a: Value | Number, b: Value | Number, c: Value) -> Value:
        """a·b + c, in one rounding where the CPU has that; elsewhere in two."""
        a, b = self.as_value(a, c.type), self.as_value(b, c.type)
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
        """To the nearest whole number, ties to the even one."""
        if self._has_rounding:
            return self.intrinsic("roundeven", x.type, x)
        # next to a number this large there are only whole ones
        large = 2.0 ** (52 if x.type.bits == 64 else 23)
        magnitude = self.abs(x)
        with self.exact():
            rounded = (magnitude + large) - large
        return self.copysign(self.select(magnitude < large, rounded, magnitude), x)

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

    def rounded(self, x: Value, type: Type) -> Value:
        """A value as it is when it has been stored as `type` and loaded again."""
        return self._computed(self._stored(x, type), type) if type.is_narrow_float else x

    # --- vectors

    def splat(self, x: Value, lanes: int) -> Value:
        """A scalar in every lane."""
        if lanes == 1 or x.type.lanes == lanes:
            return x
        type = x.type.vector(lanes)
        one = self.emit(type, f"insertelement {type} poison, {x}, i64 0")
        return self.emit(type, f"shufflevector {one}, {type} poison, <{lanes} x i32> zeroinitializer")

    def iota(self, type: Type, lanes: int) -> Value:
        """0, 1, 2, …"""
        if lanes == 1:
            return self.const(type, 0)
        items = ", ".join(f"{type.scalar} {_literal(type, lane)}" for lane in range(lanes))
        return Value(self, type.vector(lanes), f"<{items}>")

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

    # --- memory

    def address(self, pointer: Value, index: Value | int, type: Type) -> Value:
        """Where the element of a storage type at an index lies."""
        if isinstance(index, int) and index == 0:
            return pointer
        index = self.as_value(index, I64)
        name = "i8" if type.kind == "bool" else str(type.scalar)
        return self.emit(PTR, f"getelementptr {name}, {pointer}, {index}")

    def load(
        self, pointer: Value, index: Value | int, type: Type, lanes: int = 1, *, remaining: Value | None = None, align: int = 0
    ) -> Value:
        """Elements of a storage type from memory, `lanes` in a row. With `remaining`, lanes from there on are not read and are 0."""
        memory = self._memory_type(type).vector(lanes)
        place = self.address(pointer, index, type)
        alignment = align or type.bytes
        if remaining is None or lanes == 1:
            raw = self.emit(memory, f"load {memory}, {place}, align {alignment}")
        else:
            raw = self._masked_load(place, memory, self.first_lanes(remaining, lanes), alignment)
        return self._computed(raw, type)

    def store(
        self,
        value: Value | Number,
        pointer: Value,
        index: Value | int,
        type: Type,
        *,
        remaining: Value | None = None,
        align: int = 0,
    ) -> None:
        """Write a value, rounded to the storage type where that is narrower. With `remaining`, lanes from there on are left alone."""
        value = value if isinstance(value, Value) else self.const(type.computed, value)
        raw = self._stored(value, type)
        place = self.address(pointer, index, type)
        alignment = align or type.bytes
        if remaining is None or raw.type.lanes == 1:
            self.line(f"store {raw}, {place}, align {alignment}")
        else:
            mask = self.first_lanes(remaining, raw.type.lanes)
            name = f"llvm.masked.store.{mangled(raw.type)}.p0"
            self.declare(f"declare void @{name}({raw.type}, ptr, i32, {mask.type})")
            self.line(f"call void @{name}({raw}, {place}, i32 {alignment}, {mask})")

    def first_lanes(self, count: Value, lanes: int) -> Value:
        """A mask of the lanes below `count`."""
        few = self.convert(self.minimum(count, lanes), I32)
        return self.compare("lt", self.iota(I32, lanes), self.splat(few, lanes))

    def _masked_load(self, place: Value, memory: Type, mask: Value, alignment: int) -> Value:
        name = f"llvm.masked.load.{mangled(memory)}.p0"
        self.declare(f"declare {memory} @{name}(ptr, i32, {mask.type}, {memory})")
        zero = self.const(memory, 0)
        return self.emit(memory, f"call {memory} @{name}({place}, i32 {alignment}, {mask}, {zero})")

    def gather(self, pointer: Value, indices: Value, type: Type, *, mask: Value | None = None) -> Value:
        """Elements of a storage type at a vector of indices (int64). Lanes outside the mask are not read and are 0."""
        lanes = indices.type.lanes
        if lanes == 1:
            return self.load(pointer, indices, type)
        memory = self._memory_type(type).vector(lanes)
        places = self.emit(PTR.vector(lanes), f"getelementptr {memory.scalar}, {pointer}, {indices}")
        mask = mask if mask is not None else self.const(BOOL.vector(lanes), True)
        name = f"llvm.masked.gather.{mangled(memory)}.v{lanes}p0"
        self.declare(f"declare {memory} @{name}(<{lanes} x ptr>, i32, {mask.type}, {memory})")
        zero = self.const(memory, 0)
        raw = self.emit(memory, f"call {memory} @{name}(<{lanes} x ptr> {places.ref}, i32 {type.bytes}, {mask}, {zero})")
        return self._computed(raw, type)

    def scatter(self, value: Value, pointer: Value, indices: Value, type: Type) -> None:
        """Write lanes to the places of a vector of indices (int64); of lanes with the same index the last one stays."""
        if indices.type.lanes == 1:
            self.store(value, pointer, indices, type)
            return
        raw = self._stored(value, type)
        lanes = raw.type.lanes
        places = self.emit(PTR.vector(lanes), f"getelementptr {raw.type.scalar}, {pointer}, {indices}")
        mask = self.const(BOOL.vector(lanes), True)
        name = f"llvm.masked.scatter.{mangled(raw.type)}.v{lanes}p0"
        self.declare(f"declare void @{name}({raw.type}, <{lanes} x ptr>, i32, {mask.type})")
        self.line(f"call void @{name}({raw}, <{lanes} x ptr> {places.ref}, i32 {type.bytes}, {mask})")

    def _memory_type(self, type: Type) -> Type:
        if type.kind == "bool":
            return Type("uint", 8)
        return Type("uint", 16) if type.is_narrow_float else type.scalar

    def _computed(self, raw: Value, type: Type) -> Value:
        """What was loaded, as it is computed with."""
        if type.kind == "bool":
            return self.compare("ne", raw, 0)
        if not type.is_narrow_float:
            return Value(self, type.vector(raw.type.lanes), raw.ref)
        return self._from_bfloat(raw) if type.brain else self._from_half(raw)

    def _stored(self, value: Value, type: Type) -> Value:
        """A value as it is written."""
        lanes = value.type.lanes
        if type.kind == "bool":
            return self.emit(Type("uint", 8, lanes), f"zext {value} to {Type('uint', 8, lanes)}")
        if not type.is_narrow_float:
            return self.as_value(value, type.vector(lanes))
        return self._to_bfloat(value) if type.brain else self._to_half(value)

    def _from_bfloat(self, raw: Value) -> Value:
        wide = Type("uint", 32, raw.type.lanes)
        return self.bitcast(self.emit(wide, f"zext {raw} to {wide}") << 16, F32.vector(raw.type.lanes))

    def _to_bfloat(self, value: Value) -> Value:
        """Rounded to nearest, ties to even; a NaN stays one."""
        lanes = value.type.lanes
        bits = self.bitcast(value, Type("uint", 32, lanes))
        rounded = (bits + ((bits >> 16) & 1) + 0x7FFF) >> 16
        kept = self.select(self.is_nan(value), (bits >> 16) | 0x40, rounded)
        return self.emit(Type("uint", 16, lanes), f"trunc {kept} to {Type('uint', 16, lanes)}")

    def _from_half(self, raw: Value) -> Value:
        lanes = raw.type.lanes
        wide = F32.vector(lanes)
        if self.target is None or self.target.half_conversion:
            half = Type("float", 16, lanes)
            return self.emit(wide, f"fpext {self.bitcast(raw, half)} to {wide}")
        word = Type("uint", 32, lanes)
        bits = self.emit(word, f"zext {raw} to {word}")
        # exponent and fraction moved into float32's place, then scaled by 2^112: denormals come out right
        magnitude = self.bitcast((bits & 0x7FFF) << 13, wide) * 2.0**112
        special = self.bitcast(((bits & 0x7FFF) << 13) | 0x7F800000, wide)
        found = self.select((bits & 0x7C00) == 0x7C00, special, magnitude)
        return self.bitcast(self.bitcast(found, word) | ((bits & 0x8000) << 16), wide)

    def _to_half(self, value: Value) -> Value:
        lanes = value.type.lanes
        out = Type("uint", 16, lanes)
        # one alone that comes from a float64 LLVM would give to a function that is not there
        if lanes > 1 and (self.target is None or self.target.half_conversion):
            half = Type("float", 16, lanes)
            return self.bitcast(self.emit(half, f"fptrunc {value} to {half}"), out)
        word = Type("uint", 32, lanes)
        bits = self.bitcast(value, word)
        magnitude = bits & 0x7FFFFFFF
        sign = (bits >> 16) & 0x8000
        normal = ((magnitude - 0x38000000) + 0xFFF + ((magnitude >> 13) & 1)) >> 13
        # below the normal range: adding a large float leaves the rounded fraction in its low bits
        small = self.bitcast(self.bitcast(magnitude, F32.vector(lanes)) + 0.5, word) - 0x3F000000
        finite = self.select(magnitude < 0x38800000, small, normal)
        finite = self.select(magnitude >= 0x477FF000, self.const(word, 0x7C00), finite)
        nan = ((magnitude >> 13) & 0x3FF) | 0x7E00
        found = self.select(magnitude > 0x7F800000, nan, finite) | sign
        return self.emit(out, f"trunc {found} to {out}")

    def stack(self, type: Type, count: int, align: int = 64) -> Value:
        """Memory of this call alone, for a known number of elements."""
        self._count += 1
        ref = f"%m{self._count}"
        self._entry.append(f"  {ref} = alloca [{count} x {self._memory_type(type)}], align {align}")
        return Value(self, PTR, ref)

    def prefetch(self, pointer: Value, index: Value | int, type: Type, *, near: bool = True) -> None:
        """Begin to fetch what lies there: into the first-level cache, or only into the second if it is not needed soon."""
        self.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.line(f"call void @llvm.prefetch.p0({self.address(pointer, index, type)}, i32 0, i32 {3 if near else 2}, i32 1)")

    def opaque(self, value: Value) -> Value:
        """The same value, of which LLVM forgets how it was computed: what it cannot see through it does not rearrange."""
        return self.emit(value.type, f'call {value.type} asm "", "=r,0"({value})')

    def as_pointer(self, number: Value) -> Value:
        return self.emit(PTR, f"inttoptr {number} to ptr")

    # --- control

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


def mangled(type: Type) -> str:
    """A type as it stands in the name of an intrinsic."""
    one = (
        "p0" if type.kind == "pointer" else {BF16: "bf16"}.get(type.scalar) or ("f" if type.is_float else "i") + str(type.bits)
    )
    return one if type.lanes == 1 else f"v{type.lanes}{one}"


def _literal(type: Type, number: Number) -> str:
    if type.is_float:
        return _float_literal(type, float(number))
    if type.kind == "bool":
        return "true" if number else "false"
    if type.kind == "pointer":
        return "null"
    whole = int(number)
    if whole != number:
        raise TypeError(f"{number} is not a whole number, as {type} needs it")
    return str(whole)


def _float_literal(type: Type, number: float) -> str:
    """LLVM writes a float32 constant as the double of the same value, in hexadecimal."""
    if type.bits == 32 and math.isfinite(number):
        number = _as_float32(number)
    elif type.bits not in (32, 64):
        raise TypeError(f"constants of {type} are not written: narrow floats are computed as {F32} or {F64}")
    bits = struct.unpack("<Q", struct.pack("<d", number))[0]
    return f"0x{bits:016X}"


def _as_float32(number: float) -> float:
    try:
        return struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
