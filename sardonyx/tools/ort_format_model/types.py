"""Types of values in ORT files as C++ calls them: what lists of required types are written in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sardonyx.tools.ort_format_model.ort_flatbuffers_py import fbs

CPP_NAMES = {
    "float": "FLOAT",
    "double": "DOUBLE",
    "bool": "BOOL",
    "std::string": "STRING",
    "MLFloat16": "FLOAT16",
    **{f"{sign}int{bits}_t": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{name: name.upper() for name in ("BFloat16", "Float8E4M3FN", "Float8E4M3FNUZ", "Float8E5M2", "Float8E5M2FNUZ")},
}
"""What C++ calls the types of ORT files."""


class FbsTypeInfo:
    """Types as text."""

    tensordatatype_to_string = {
        getattr(fbs.TensorDataType.TensorDataType, name): cpp  # type: ignore[attr-defined]
        for cpp, name in CPP_NAMES.items()
    }

    @staticmethod
    def typeinfo_to_str(type: Any) -> str:
        """The type of a tensor's elements, of a sequence's, or of a map."""
        kind, value = type.ValueType(), type.Value()
        kinds = fbs.TypeInfoValue.TypeInfoValue  # type: ignore[attr-defined]
        if kind == kinds.tensor_type:
            return _name(_read(fbs.TensorTypeAndShape.TensorTypeAndShape, value).ElemType())  # type: ignore[attr-defined]
        if kind == kinds.sequence_type:
            return FbsTypeInfo.typeinfo_to_str(_read(fbs.SequenceType.SequenceType, value).ElemType())  # type: ignore[attr-defined]
        if kind == kinds.map_type:
            found = _read(fbs.MapType.MapType, value)  # type: ignore[attr-defined]
            return f"std::map<{_name(found.KeyType())},{FbsTypeInfo.typeinfo_to_str(found.ValueType())}>"
        raise ValueError(f"Unknown or missing value type of {kind}")


def _read(kind: Any, value: Any) -> Any:
    reader = kind()
    reader.Init(value.Bytes, value.Pos)
    return reader


def _name(element_type: int) -> str:
    return FbsTypeInfo.tensordatatype_to_string[element_type]


def get_typeinfo(name: str, value_name_to_typeinfo: Mapping[str, Any]) -> Any:
    """The type of a value by its name."""
    if name not in value_name_to_typeinfo:
        raise RuntimeError(f"Missing TypeInfo entry for {name}")
    return value_name_to_typeinfo[name]


def value_name_to_typestr(name: str, value_name_to_typeinfo: Mapping[str, Any]) -> str:
    """The type of a value as text."""
    return FbsTypeInfo.typeinfo_to_str(get_typeinfo(name, value_name_to_typeinfo))
