"""Loads and stores, as `builder` writes them: masks, gathers, and floats of 16 bits, which exist in memory only."""

from __future__ import annotations

from sardonyx.compiler.instructions import Instructions
from sardonyx.compiler.target import X86_LEVELS
from sardonyx.compiler.types import BOOL, F32, I32, I64, PTR, Type
from sardonyx.compiler.values import Number, Value, mangled

LARGEST_VECTOR = 64
"""Bytes; longer ones are several."""


def _alignment(type: Type) -> int:
    """At multiples of how many bytes elements lie: complex numbers at those of their parts."""
    return type.bytes // 2 if type.format.startswith("complex") else type.bytes


class Storage(Instructions):
    """The part of a function being written that touches memory."""

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
        alignment = align or _alignment(type)
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
        streams: bool = False,
    ) -> None:
        """Write a value, rounded to the storage type where that is narrower. With `remaining`, lanes from there on are left alone.

        What `streams` goes to memory past the caches, in whole vectors at places that are multiples of their size; see `fence`.
        """
        value = value if isinstance(value, Value) else self.const(type.computed, value)
        raw = self._stored(value, type)
        place = self.address(pointer, index, type)
        alignment = align or _alignment(type)
        if streams:
            self.declare("!0 = !{i32 1}")
            alignment = min(raw.type.lanes * raw.type.bytes, LARGEST_VECTOR)
            self.line(f"store {raw}, {place}, align {alignment}, !nontemporal !0")
        elif remaining is None or raw.type.lanes == 1:
            self.line(f"store {raw}, {place}, align {alignment}")
        else:
            mask = self.first_lanes(remaining, raw.type.lanes)
            name = f"llvm.masked.store.{mangled(raw.type)}.p0"
            self.declare(f"declare void @{name}({raw.type}, ptr, i32, {mask.type})")
            self.line(f"call void @{name}({raw}, {place}, i32 {alignment}, {mask})")

    def fence(self) -> None:
        """Have what was streamed before this place arrive before what is written after it."""
        if self.target is not None and self.target.name in X86_LEVELS:
            self.declare("declare void @llvm.x86.sse.sfence()")
            self.line("call void @llvm.x86.sse.sfence()")

    def first_lanes(self, count: Value, lanes: int) -> Value:
        """A mask of the lanes below `count`."""
        few = self.convert(self.minimum(count, lanes), I32)
        return self.compare("lt", self.iota(I32, lanes), self.splat(few, lanes))

    def _masked_load(self, place: Value, memory: Type, mask: Value, alignment: int) -> Value:
        name = f"llvm.masked.load.{mangled(memory)}.p0"
        self.declare(f"declare {memory} @{name}(ptr, i32, {mask.type}, {memory})")
        zero = self.const(memory, 0)
        return self.emit(memory, f"call {memory} @{name}({place}, i32 {alignment}, {mask}, {zero})")

    def gather(self, pointer: Value, indices: Value, type: Type, *, mask: Value | None = None, align: int = 0) -> Value:
        """Elements of a storage type at a vector of indices (int64). Lanes outside the mask are not read and are 0."""
        lanes = indices.type.lanes
        if lanes == 1:
            return self.load(pointer, indices, type, align=align)
        memory = self._memory_type(type).vector(lanes)
        places = self.emit(PTR.vector(lanes), f"getelementptr {memory.scalar}, {pointer}, {indices}")
        mask = mask if mask is not None else self.const(BOOL.vector(lanes), True)
        name = f"llvm.masked.gather.{mangled(memory)}.v{lanes}p0"
        self.declare(f"declare {memory} @{name}(<{lanes} x ptr>, i32, {mask.type}, {memory})")
        zero = self.const(memory, 0)
        raw = self.emit(
            memory, f"call {memory} @{name}(<{lanes} x ptr> {places.ref}, i32 {align or _alignment(type)}, {mask}, {zero})"
        )
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
        self.line(f"call void @{name}({raw}, <{lanes} x ptr> {places.ref}, i32 {_alignment(type)}, {mask})")

    def rounded(self, x: Value, type: Type) -> Value:
        """A value as it is when it has been stored as `type` and loaded again."""
        return self._computed(self._stored(x, type), type) if type.is_narrow_float else x

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
        widened = self.select((bits & 0x7C00) == 0x7C00, special, magnitude)
        return self.bitcast(self.bitcast(widened, word) | ((bits & 0x8000) << 16), wide)

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
        narrowed = self.select(magnitude > 0x7F800000, nan, finite) | sign
        return self.emit(out, f"trunc {narrowed} to {out}")

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
        """The same value, but LLVM cannot see how it was computed, so it does not rearrange the computation."""
        return self.emit(value.type, f'call {value.type} asm "", "=r,0"({value})')

    def empty_registers(self) -> None:
        """Let no vector register keep its value across this place: constants of one loop do not take registers from another."""
        if self.target is not None and self.target.name != "generic":
            name = "v" if self.target.name == "neon" else "xmm"
            names = ",".join(f"~{{{name}{number}}}" for number in range(self.target.vector_registers))
            self.line(f'call void asm sideeffect "", "{names}"()')

    def as_pointer(self, number: Value) -> Value:
        return self.emit(PTR, f"inttoptr {number} to ptr")

    def as_number(self, pointer: Value) -> Value:
        return self.emit(I64, f"ptrtoint {pointer} to i64")
