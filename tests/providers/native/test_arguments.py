"""What kernels declare is what lowerings must give: every way to get it wrong is an error at creation, with names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from sardonyx.compiler.jit import jit
from sardonyx.compiler.target import X86_LEVELS
from sardonyx.compiler.types import F32
from sardonyx.ir import Node
from sardonyx.providers.native.execution.immediate import memory_of, run_now
from sardonyx.providers.native.kernels.shape.copying import CopyArguments
from sardonyx.providers.native.program.arguments import (
    NUMBER,
    POINTER,
    SIZE,
    Arguments,
    Number,
    Operands,
    Pointer,
    Size,
    Slot,
    WrongArguments,
    declare,
    each,
    group,
    when,
)
from sardonyx.providers.native.program.kernel import DeclaredKernel, KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Buffer
from tests.providers.native.networks import Network, open_session
from tests.providers.native.test_refusals import breaks


class Axis(Arguments):
    stride: Size
    size: Size


class Example(Arguments):
    source: Pointer
    scale: Number
    count: Size
    lengths: Pointer | None = when(lambda has_lengths: has_lengths)
    axes: Sequence[Axis] = each(lambda rank: rank)
    more: Operands = group(lambda rank: [Slot(f"in{n}", POINTER) for n in range(rank)])


class Longer(Example):
    status: Pointer


class Other(Arguments):
    source: Pointer


@kernel("example", Example)
def example_kernel(f: KernelFunction, a: Example, rank: int, has_lengths: bool = False) -> None:
    """Items are elements: out = source · scale, where `more` has the place of `out`."""
    with f.loop(f.begin, f.end) as item:
        f.store(f.load(a.source, item, F32) * f.convert(a.scale, F32), a.more[0], item, F32)


@kernel("longer", Longer)
def longer_kernel(f: KernelFunction, a: Longer, rank: int, has_lengths: bool) -> None:
    pass


def example(rank: int = 1, has_lengths: bool = False) -> DeclaredKernel:
    return example_kernel(X86_LEVELS["avx2"], rank, has_lengths)


PLACE = Buffer("x", 8)
RIGHT: dict[str, Any] = {
    "source": PLACE,
    "scale": 0.5,
    "count": 3,
    "lengths": None,
    "axes": [Axis(stride=1, size=4)],
    "more": [PLACE],
}
"""What the example takes for a rank of 1, without lengths."""


def words(record: Arguments, kernel: DeclaredKernel | None = None) -> list[Any]:
    asked = kernel or example()
    return asked.declaration.words(asked.title, record)


def test_words_lie_in_the_order_of_the_declaration() -> None:
    assert words(Example(**RIGHT)) == [PLACE, 0.5, 3, 1, 4, PLACE]
    assert words(Example(**dict(reversed(RIGHT.items())))) == [PLACE, 0.5, 3, 1, 4, PLACE]


def test_what_shapes_the_code_decides_what_there_is() -> None:
    slots = {slot.name: slot.kind for slot in example(2, True).declaration.slots()}
    assert slots == {
        "source": POINTER,
        "scale": NUMBER,
        "count": SIZE,
        "lengths": POINTER,
        "axes.0.stride": SIZE,
        "axes.0.size": SIZE,
        "axes.1.stride": SIZE,
        "axes.1.size": SIZE,
        "more.in0": POINTER,
        "more.in1": POINTER,
    }
    assert [slot.name for slot in example(0).declaration.slots()] == ["source", "scale", "count"]


def test_a_record_that_extends_another_has_its_fields_first() -> None:
    names = [slot.name for slot in longer_kernel(X86_LEVELS["avx2"], 0, False).declaration.slots()]
    assert names == ["source", "scale", "count", "status"]


class MarkedCopy(CopyArguments):
    status: Pointer


def test_a_record_may_extend_one_of_another_module() -> None:
    names = [slot.name for slot in declare(MarkedCopy, {"rank": 1}).slots()]
    assert names == ["source.place", "source.strides.0", "target.place", "target.strides.0", "status"]


class Table(Arguments):
    size: Size
    indices: Pointer | None = when(lambda item: item == "indexed")


class Tables(Arguments):
    tables: Sequence[Table] = each(lambda kinds: kinds)


@kernel("tables", Tables)
def tables_kernel(f: KernelFunction, a: Tables, kinds: tuple[str, ...]) -> None:
    pass


def test_the_elements_of_a_sequence_are_shaped_by_those_of_another() -> None:
    tables = tables_kernel(X86_LEVELS["avx2"], ("plain", "indexed"))
    assert [slot.name for slot in tables.declaration.slots()] == ["tables.0.size", "tables.1.size", "tables.1.indices"]
    right = [Table(size=4, indices=None), Table(size=5, indices=PLACE)]
    assert words(Tables(tables=right), tables) == [4, 5, PLACE]
    with pytest.raises(WrongArguments, match="this form takes no argument 'tables.0.indices', but is given"):
        words(Tables(tables=right[::-1]), tables)


def test_code_reads_the_words_in_the_same_order() -> None:
    f = KernelFunction(X86_LEVELS["avx2"])
    record = f.arguments(example(1, True).declaration)
    values = [
        record.source,
        record.scale,
        record.count,
        record.lengths,
        record.axes[0].stride,
        record.axes[0].size,
        *record.more,
    ]
    assert [value.type for value in values] == [slot.kind.type for slot in example(1, True).declaration.slots()]
    assert KernelFunction(X86_LEVELS["avx2"]).arguments(example().declaration).lengths is None


WRONG = {
    "a size for a pointer": ({"source": 8}, "kernel 'example': argument 'source' is a pointer, not 8"),
    "nothing for a pointer": ({"source": None}, "argument 'source' is a pointer, not None"),
    "a pointer for a size": ({"count": PLACE}, "argument 'count' is a size, not <arena x: 8 bytes>"),
    "a number for a size": ({"count": 3.0}, "argument 'count' is a size, not 3.0"),
    "a truth for a size": ({"count": True}, "argument 'count' is a size, not True"),
    "a size for a number": ({"scale": 1}, "argument 'scale' is a number, not 1"),
    "one that this form lacks": ({"lengths": PLACE}, "this form takes no argument 'lengths', but is given"),
    "too few of a sequence": ({"axes": []}, "argument 'axes' has 1 elements (0), not []"),
    "too many of a sequence": ({"axes": [Axis(stride=1, size=1)] * 2}, "argument 'axes' has 1 elements"),
    "no sequence": ({"axes": Axis(stride=1, size=1)}, "argument 'axes' has 1 elements"),
    "another record": ({"axes": [Other(source=PLACE)]}, "argument 'axes.0' is a Axis, not Other(source="),
    "a wrong field of an inner record": ({"axes": [Axis(stride=PLACE, size=1)]}, "argument 'axes.0.stride' is a size"),
    "too few of a group": ({"more": []}, "argument 'more' has 1 elements (in0), not []"),
    "a wrong kind in a group": ({"more": [4]}, "argument 'more.in0' is a pointer, not 4"),
}


@pytest.mark.parametrize("way", WRONG)
def test_wrong_values_are_refused_by_name(way: str) -> None:
    changed, message = WRONG[way]
    with pytest.raises(WrongArguments) as caught:
        words(Example(**{**RIGHT, **changed}))
    assert message in str(caught.value)


def test_one_argument_too_few_or_too_many_is_refused_by_name() -> None:
    with pytest.raises(WrongArguments, match="Example lacks the argument 'count'"):
        Example(**{name: value for name, value in RIGHT.items() if name != "count"})
    with pytest.raises(WrongArguments, match="Example has no argument 'length'"):
        Example(**RIGHT, length=3)


def test_the_record_of_another_kernel_is_refused() -> None:
    with pytest.raises(WrongArguments, match="kernel 'example': its record is a Example, not Other"):
        words(Other(source=PLACE))


def test_an_optional_argument_that_the_form_needs_is_refused_if_absent() -> None:
    with pytest.raises(WrongArguments, match="argument 'lengths' is a pointer, not None"):
        words(Example(**RIGHT), example(1, True))


def test_the_declaration_is_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    target = X86_LEVELS["avx2"]
    emit = example_kernel.__wrapped__  # type: ignore[attr-defined]
    monkeypatch.setattr(emit, "__module__", "sardonyx.test")  # keys are for code of the package alone
    keys = {kernel("example", record)(emit)(target, 0, False).key for record in (Example, Longer)}
    assert None not in keys and len(keys) == 2


# --- outside of programs


def test_kernels_that_run_now_are_given_their_record() -> None:
    x, y = np.float32([1, 2, 4]), np.empty(3, np.float32)
    right = {**RIGHT, "source": memory_of(x), "more": [memory_of(y)]}
    run_now(example_kernel(jit().target, 1), Example(**right), items=3)
    assert y.tolist() == [0.5, 1, 2]


@pytest.mark.parametrize("way", WRONG)
def test_kernels_that_run_now_refuse_wrong_values_by_name(way: str) -> None:
    changed, message = WRONG[way]
    with pytest.raises(WrongArguments) as caught:
        run_now(example_kernel(jit().target, 1), Example(**{**RIGHT, **changed}), items=3)
    assert message in str(caught.value)


# --- at creation


def lowers(**changed: Any) -> Any:
    """A lowering that gives the example kernel what it takes, but for what is changed."""

    def lowering(lowerer: Lowerer, node: Node) -> None:
        x, y = lowerer.view(node.inputs[0]), lowerer.output(node.outputs[0])
        record = Example(**{**RIGHT, "source": x.place, "more": [y.place], **changed})
        lowerer.call(example_kernel(lowerer.target, 1), record, x.shape[0])

    return lowering


def cumsum_model() -> bytes:
    net = Network()
    return net.model(net.CumSum(net.input("x", ["N"]), net.constant(0)))


def test_right_arguments_run(monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(monkeypatch, "CumSum", lowers())
    (result,) = open_session(cumsum_model()).run(None, {"x": np.float32([1, 2, 4])})
    assert result.tolist() == [0.5, 1, 2]


@pytest.mark.parametrize("strict", ["", "1"])
@pytest.mark.parametrize("way", WRONG)
def test_a_lowering_with_wrong_arguments_is_an_error_at_creation(
    way: str, strict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SARDONYX_STRICT", strict)
    changed, message = WRONG[way]
    breaks(monkeypatch, "CumSum", lowers(**changed))
    with pytest.raises(Exception) as caught:
        open_session(cumsum_model())
    assert message in str(caught.value)
