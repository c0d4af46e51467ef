"""Type inference of sequences and optionals. The driver calls these functions; control flow takes `common_type` from here.

The sizes of a sequence's element type are those that all its tensors have in common.
"""

from __future__ import annotations

from sardonyx import dtypes
from sardonyx.errors import InferenceError
from sardonyx.ir import NoTensorType, OptionalType, SequenceType, TensorType, dim
from sardonyx.ops.operand import Known, Operand
from sardonyx.ops.shapes import axis_index, common_shape, element_type, text
from sardonyx.ops.table import infer


def common_type(a, b, what):
    """The type of a value that is one of two, None if nothing is known of one; their kinds must agree."""
    if a is None or b is None:
        return None
    if isinstance(a, (SequenceType, OptionalType)) and type(a) is type(b):
        return type(a)(common_type(a.element, b.element, what))
    if isinstance(a, TensorType) and isinstance(b, TensorType) and NoTensorType in (type(a), type(b)):
        a, b = (b, a) if isinstance(a, NoTensorType) else (a, b)
        b = TensorType(b.dtype, a.shape)
    if type(a) is not type(b) or (getattr(a, "dtype", None) or b.dtype) is not (getattr(b, "dtype", None) or a.dtype):
        raise InferenceError(f"{what} differ in type: {a} and {b}")
    return type(a)(a.dtype or b.dtype, common_shape(a.shape, b.shape)) if isinstance(a, TensorType) else a


def one_of(element):
    """The type of one of the elements. A size without a name may be another in each of them."""
    if not isinstance(element, TensorType):
        return element
    if element.shape is None or isinstance(element, NoTensorType):
        return TensorType(element.dtype)
    return TensorType(element.dtype, tuple(dim.fresh() if _varies(size) else size for size in element.shape))


def _varies(size) -> bool:
    return any(symbol.is_anonymous for symbol in dim.symbols(size))


def _element(sequence):
    """Type of a sequence's elements, a tensor of which nothing is known if need be."""
    return sequence.element or TensorType(None)


@infer("SequenceConstruct")
def sequence_construct(inputs):
    element = inputs[0].type
    for operand in inputs[1:]:
        element = common_type(element, operand.type, "the elements")
    return None if element is None else SequenceType(element)


@infer("SequenceEmpty")
def sequence_empty(dtype):
    return SequenceType(NoTensorType(dtypes.float32 if dtype is None else element_type(dtype)))


@infer("SequenceAt")
def sequence_at(input_sequence):
    return one_of(_element(input_sequence))


@infer("SequenceInsert")
def sequence_insert(input_sequence, tensor):
    return SequenceType(common_type(_element(input_sequence), tensor.type or TensorType(None), "sequence and tensor"))


@infer("SequenceErase")
def sequence_erase(input_sequence):
    return input_sequence.type


@infer("SequenceLength")
def sequence_length(input_sequence):
    return ()


@infer("ConcatFromSequence")
def concat_from_sequence(input_sequence, axis, new_axis):
    element = one_of(_element(input_sequence))
    if element.shape is None:
        return TensorType(element.dtype)
    shape = list(element.shape)
    if new_axis:
        shape.insert(axis_index(axis, len(shape) + 1), dim.fresh())
    else:
        shape[axis_index(axis, len(shape))] = dim.fresh()
    return TensorType(element.dtype, tuple(shape))


@infer("SplitToSequence")
def split_to_sequence(input, split, axis, keepdims):
    if input.shape is None:
        return SequenceType(TensorType(input.dtype))
    axis = axis_index(axis, len(input.shape))
    before, after = input.shape[:axis], input.shape[axis + 1 :]
    if split is None and not keepdims:
        return SequenceType(TensorType(input.dtype, (*before, *after)))
    return SequenceType(TensorType(input.dtype, (*before, _part_size(input.shape[axis], split), *after)))


def _part_size(size, split):
    """The size that all parts have, fresh if they may differ."""
    if split is None:
        return 1
    parts = split.dims
    if parts is None:
        return dim.fresh()
    if split.rank == 0:
        whole = size % parts[0] if isinstance(parts[0], int) and parts[0] > 0 else None
        return parts[0] if isinstance(whole, int) and whole == 0 else dim.fresh()
    total = sum(parts)
    if isinstance(total, int) and isinstance(size, int) and total != size:
        raise InferenceError(f"split {text(parts)} does not add up to the size {size}")
    return parts[0] if len(set(parts)) == 1 else dim.fresh()


@infer("SequenceMap")
def sequence_map(input_sequence, additional_inputs, body):
    operands = [Operand(one_of(_element(input_sequence)))]
    for operand in additional_inputs:
        operands.append(Operand(one_of(_element(operand))) if isinstance(operand.type, SequenceType) else operand)
    return [None if output.type is None else SequenceType(output.type) for output in body(*operands)]


@infer("Optional")
def optional(input, type):
    if input is None and type is None:
        raise InferenceError("Attribute 'type' should be a TypeProto and it should specify a type, or there must be an input")
    element = type if input is None else input.type
    return None if element is None else OptionalType(element)


@infer("OptionalGetElement")
def optional_get_element(input):
    return input.element if isinstance(input.type, OptionalType) else Known(input.type, input.value)


@infer("OptionalHasElement")
def optional_has_element(input):
    return ()
