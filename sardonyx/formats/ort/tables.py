"""The schema of the ORT format as data: `decoding` and `encoding` are both driven by it.

A *tree* is how a buffer looks in Python, and both sides keep to this form:

- a table is a dict by field name. Scalars are always there, with their default where the buffer leaves them out; strings, vectors,
  tables and unions are there only if the buffer has them (an empty vector is there).
- enums are ints, bool is bool, a float32 is the float of the same value. A string is a str. Names and texts are UTF-8; where any bytes
  may stand (the content of string tensors and attributes), what is no UTF-8 is in the str as surrogates (`errors="surrogateescape"`).
- a vector of tables is a list of dicts, of strings a list of str, of scalars a list of numbers, of the struct EdgeEnd a list of
  tuples `(node_index, src_arg_index, dst_arg_index)`. A vector of bytes (`raw_data`) is a memoryview of the buffer, or anything
  bytes-like on the way out.
- the union of `TypeInfo` is two fields: `value_type` the tag, `value` the table that the tag names.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

IDENTIFIER = b"ORTM"
RESOLVER_IDENTIFIER = b"ktsr"
"""Of a buffer that holds nothing but a KernelTypeStrResolver."""
ROOT = "InferenceSession"
VERSION = 6
"""The version that we write, and the newest that we read."""
FIRST_VERSION_WITH_RESOLVER = 5
NO_NODE = 0xFFFFFFFF
"""Stands for an optional node that is left out, in the records of runtime optimizations."""
UNSET_MODEL_VERSION = 2**63 - 1


class DimensionValueType(enum.IntEnum):
    UNKNOWN = 0
    VALUE = 1
    PARAM = 2


class NodeType(enum.IntEnum):
    PRIMITIVE = 0
    FUSED = 1


class ArgType(enum.IntEnum):
    INPUT = 0
    OUTPUT = 1


class TypeInfoValue(enum.IntEnum):
    NONE = 0
    TENSOR_TYPE = 1
    SEQUENCE_TYPE = 2
    MAP_TYPE = 3


class FieldKind(enum.Enum):
    """What a field holds."""

    SCALAR = "scalar"
    STRING = "string"
    TABLE = "table"
    UNION = "union"
    BYTES = "bytes"
    SCALARS = "scalars"
    STRINGS = "strings"
    STRUCTS = "structs"
    TABLES = "tables"
    DEPRECATED = "deprecated"
    """A slot that nobody reads or writes any more."""


class Field(NamedTuple):
    """One slot of a table. `code` is the struct code of a scalar or of an element, `table` the table of a TABLE or of TABLES."""

    name: str
    slot: int
    kind: FieldKind
    code: str = ""
    table: str = ""
    default: int | float | bool = 0
    key: bool = False
    """Vectors of the table are sorted by this string, which must be there."""
    any_bytes: bool = False
    """Strings that are content of the model, not names or texts: they need not be UTF-8."""


UNIONS = {
    TypeInfoValue.TENSOR_TYPE: "TensorTypeAndShape",
    TypeInfoValue.SEQUENCE_TYPE: "SequenceType",
    TypeInfoValue.MAP_TYPE: "MapType",
}
"""Tables of the one union there is, by tag."""

STRUCTS = {"EdgeEnd": "Iii"}
"""node_index, src_arg_index, dst_arg_index."""

_SCALARS = {
    "bool": "?",
    "int8": "b",
    "uint8": "B",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float32": "f",
    "AttributeType": "i",
    "TensorDataType": "i",
    "NodeType": "i",
    "DimensionValueType": "b",
    "ArgType": "b",
    "TypeInfoValue": "B",
}

# Table: fields by slot, each with its type. `*` marks a table, `[]` a vector, `=` a default that is not zero; `key` is a string that
# vectors are sorted by, `data` one of any bytes.
_SCHEMA = """
Shape: dim [*Dimension]
Dimension: value *DimensionValue, denotation str
DimensionValue: dim_type DimensionValueType, dim_value int64, dim_param str
TensorTypeAndShape: elem_type TensorDataType, shape *Shape
MapType: key_type TensorDataType, value_type *TypeInfo
SequenceType: elem_type *TypeInfo
NodeEdge: node_index uint32, input_edges [EdgeEnd], output_edges [EdgeEnd]
Node: name str, doc_string str, domain str, since_version int32, index uint32, op_type str, type NodeType,
    execution_provider_type str, inputs [str], outputs [str], attributes [*Attribute], input_arg_counts [int32],
    implicit_inputs [str]
ValueInfo: name str, doc_string str, type *TypeInfo
TypeInfo: denotation str, value_type TypeInfoValue, value union
OperatorSetId: domain str, version int64
Tensor: name str, doc_string str, dims [int64], data_type TensorDataType, raw_data [uint8], string_data [data],
    external_data_offset int64=-1
SparseTensor: values *Tensor, indices *Tensor, dims [int64]
Attribute: name str, doc_string str, type AttributeType, f float32, i int64, s data, t *Tensor, g *Graph, floats [float32],
    ints [int64], strings [data], tensors [*Tensor], graphs [*Graph]
NodesToOptimizeIndices: node_indices [uint32], num_inputs uint32, num_outputs uint32, has_variadic_input bool,
    has_variadic_output bool, num_variadic_inputs uint32, num_variadic_outputs uint32
RuntimeOptimizationRecord: action_id str, nodes_to_optimize_indices *NodesToOptimizeIndices, produced_nodes deprecated,
    produced_op_ids [str]
RuntimeOptimizationRecordContainerEntry: optimizer_name key, runtime_optimization_records [*RuntimeOptimizationRecord]
RuntimeOptimizations: records [*RuntimeOptimizationRecordContainerEntry]
Graph: initializers [*Tensor], node_args [*ValueInfo], nodes [*Node], max_node_index uint32, node_edges [*NodeEdge], inputs [str],
    outputs [str], sparse_initializers [*SparseTensor], runtime_optimizations *RuntimeOptimizations
StringStringEntry: key str, value str
Model: ir_version int64, opset_import [*OperatorSetId], producer_name str, producer_version str, domain str, model_version int64,
    doc_string str, graph *Graph, graph_doc_string str, metadata_props [*StringStringEntry]
ArgTypeAndIndex: arg_type ArgType, index uint32
KernelTypeStrArgsEntry: kernel_type_str key, args [*ArgTypeAndIndex]
OpIdKernelTypeStrArgsEntry: op_id key, kernel_type_str_args [*KernelTypeStrArgsEntry]
KernelTypeStrResolver: op_kernel_type_str_args [*OpIdKernelTypeStrArgsEntry]
IntProperty: name str, value int64
FloatProperty: name str, value float32
StringProperty: name str, value str
PropertyBag: ints [*IntProperty], floats [*FloatProperty], strings [*StringProperty]
ParameterOptimizerState: param_name str, momentums [*Tensor]
OptimizerGroup: group_name str, step int64, initial_learning_rate float32, optimizer_states [*ParameterOptimizerState]
ModuleState: requires_grad_params [*Tensor], frozen_params [*Tensor], is_nominal_state bool, has_external_data bool
Checkpoint: version int32, module_state *ModuleState, optimizer_groups [*OptimizerGroup], property_bag *PropertyBag
LoraParameter: name str, dims [int64], data_type TensorDataType, raw_data [uint8]
Adapter: format_version int32, adapter_version int32, model_version int32, parameters [*LoraParameter]
DeprecatedNodeIndexAndKernelDefHash: node_index uint32, kernel_def_hash uint64
DeprecatedKernelCreateInfos: node_indices [uint32], kernel_def_hashes [uint64]
DeprecatedSubGraphSessionState: graph_id key, session_state *DeprecatedSessionState
DeprecatedSessionState: kernels *DeprecatedKernelCreateInfos, sub_graph_session_states [*DeprecatedSubGraphSessionState]
InferenceSession: ort_version str, model *Model, session_state deprecated, kernel_type_str_resolver *KernelTypeStrResolver
"""


def _field(slot: int, text: str) -> Field:
    name, _, kind = text.strip().partition(" ")
    kind, _, default = kind.partition("=")
    vector = kind.startswith("[")
    kind = kind.strip("[]")
    if kind.startswith("*"):
        return Field(name, slot, FieldKind.TABLES if vector else FieldKind.TABLE, table=kind[1:])
    if kind in ("str", "key", "data"):
        return Field(name, slot, FieldKind.STRINGS if vector else FieldKind.STRING, key=kind == "key", any_bytes=kind == "data")
    if kind in STRUCTS:
        return Field(name, slot, FieldKind.STRUCTS, STRUCTS[kind])
    if kind in ("union", "deprecated"):
        return Field(name, slot, FieldKind(kind))
    code = _SCALARS[kind]
    if vector:
        return Field(name, slot, FieldKind.BYTES if code == "B" else FieldKind.SCALARS, code)
    return Field(name, slot, FieldKind.SCALAR, code, default={"?": False, "f": 0.0}.get(code, int(default or 0)))


def _tables(schema: str) -> dict[str, tuple[Field, ...]]:
    lines = schema.replace(",\n", ",").strip().splitlines()
    named = (line.split(": ", 1) for line in lines)
    return {name: tuple(_field(slot, text) for slot, text in enumerate(fields.split(","))) for name, fields in named}


TABLES = _tables(_SCHEMA)
"""Fields by slot of each table."""
