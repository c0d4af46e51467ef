"""What a user wants for single tensors, `extra_options["TensorQuantOverrides"]`: types, ranges, parameters, conversions.

A tensor has a list of dicts: one for the tensor, or, with `axis` in the first, one for all its channels or one for each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any

import onnx

from sardonyx.quantization.types import QuantType

Overrides = dict[str, Any]
PARAMETERS = ("scale", "zero_point")
SETTINGS = ("symmetric", "reduce_range", "rmax", "rmin")
"""What makes no sense beside a given scale and zero point."""


@dataclass
class QuantTypeInfo:
    """The type of a tensor, and how its range is used; None where the default holds."""

    quant_type: QuantType
    symmetric: bool | None = None
    reduce_range: bool | None = None
    axis: int | None = None

    @staticmethod
    def load_from_dict(
        raw_dict: Overrides,
        default_qtype: QuantType | None = None,
        default_symmetric: bool | None = None,
        default_reduce_range: bool | None = None,
    ) -> QuantTypeInfo:
        quant_type: Any = raw_dict.get("quant_type", default_qtype)
        return QuantTypeInfo(
            quant_type,
            raw_dict.get("symmetric", default_symmetric),
            raw_dict.get("reduce_range", default_reduce_range),
            raw_dict.get("axis"),
        )

    def save_to_dict(self, raw_dict: Overrides) -> None:
        raw_dict["quant_type"] = self.quant_type
        for name in ("symmetric", "reduce_range", "axis"):
            if getattr(self, name) is not None:
                raw_dict[name] = getattr(self, name)


class TensorQuantOverridesHelper(MutableMapping[str, list[Overrides]]):
    """The overrides as a mapping, with questions about single tensors and a check of all."""

    def __init__(self, raw_overrides: dict[str, list[Overrides]]):
        self.overrides = raw_overrides
        self.quant_types: set[QuantType] | None = None

    def __getitem__(self, key: str) -> list[Overrides]:
        return self.overrides[key]

    def __setitem__(self, key: str, value: list[Overrides]) -> None:
        self.overrides[key] = value
        self.quant_types = None

    def __delitem__(self, key: str) -> None:
        del self.overrides[key]
        self.quant_types = None

    def __iter__(self) -> Iterator[str]:
        return iter(self.overrides)

    def __len__(self) -> int:
        return len(self.overrides)

    def __str__(self) -> str:
        return str(self.overrides)

    def __repr__(self) -> str:
        return f"{super().__repr__()}, TensorQuantOverridesHelper({self.overrides})"

    def has_per_tensor_overrides(self, tensor_name: str) -> bool:
        wanted = self.overrides.get(tensor_name) or []
        return bool(wanted) and "axis" not in wanted[0]

    def has_per_channel_overrides(self, tensor_name: str) -> bool:
        wanted = self.overrides.get(tensor_name) or []
        return bool(wanted) and "axis" in wanted[0]

    def overrides_scale_zp(self, tensor_name: str) -> bool:
        wanted = self.overrides.get(tensor_name) or []
        return bool(wanted) and all(name in wanted[0] for name in PARAMETERS)

    def get_per_tensor_overrides(self, tensor_name: str, default_val: Overrides | None = None) -> Overrides | None:
        """The dict of a tensor; channels where a tensor was expected are an error."""
        wanted = self.overrides.get(tensor_name)
        if not wanted:
            return default_val
        if "axis" in wanted[0]:
            raise ValueError(f"{tensor_name!r} is quantized as a whole, but its overrides are for channels")
        return wanted[0]

    def get_per_channel_overrides(self, tensor_name: str, default_val: list[Overrides] | None = None) -> list[Overrides] | None:
        """The dicts of a tensor's channels; a dict without axis is an error."""
        wanted = self.overrides.get(tensor_name)
        if not wanted:
            return default_val
        if "axis" not in wanted[0]:
            raise ValueError(f"{tensor_name!r} is quantized by channel, but its overrides name no axis")
        return wanted

    def get_quant_types(self) -> set[QuantType]:
        """All types that the overrides mention, those of conversions too."""
        if self.quant_types is None:
            entries = [entry for wanted in self.overrides.values() for entry in wanted or ()]
            entries += [entry["convert"] for entry in entries if "convert" in entry]
            self.quant_types = {entry["quant_type"] for entry in entries if "quant_type" in entry}
        return self.quant_types

    def is_valid(
        self, initializers: dict[str, onnx.TensorProto], activation_names: set[str], default_activation_qtype: Any
    ) -> tuple[bool, str | None]:
        """(whether everything fits together and to the model, what does not)."""
        try:
            for name, wanted in self.overrides.items():
                _check_tensor(name, wanted, initializers, activation_names, default_activation_qtype)
        except ValueError as fault:
            return False, str(fault)
        return True, None

    def update_tensor_overrides(
        self, tensor_name: str, new_vals: Overrides, channels: list[int] | None = None, overwrite: bool = True
    ) -> bool:
        """Set values for a tensor or some of its channels. False, and nothing done, if one is there and must not be overwritten."""
        if not new_vals:
            return False
        wanted = self.overrides.setdefault(tensor_name, [{}])
        chosen = wanted if channels is None else [wanted[channel] for channel in channels]
        if not overwrite and any(entry.get(name, value) != value for entry in chosen for name, value in new_vals.items()):
            return False
        for entry in chosen:
            entry.update(new_vals)
        self.quant_types = None
        return True

    def get_node_output_qtype_info(
        self, output_name: str, default_qtype: QuantType | None, default_symmetric: bool | None = None
    ) -> QuantTypeInfo:
        """The type in which a node writes a tensor."""
        wanted = self.overrides.get(output_name) or [{}]
        return QuantTypeInfo.load_from_dict(wanted[0], default_qtype, default_symmetric)

    def get_node_input_qtype_info(
        self,
        input_name: str,
        node_name: str,
        default_qtype: QuantType | None,
        default_symmetric: bool | None = None,
        default_reduce_range: bool | None = None,
    ) -> QuantTypeInfo:
        """The type in which a node reads a tensor: the converted one if the node is among its receivers."""
        wanted = (self.overrides.get(input_name) or [{}])[0]
        convert = wanted.get("convert")
        if convert and node_name in convert.get("recv_nodes", (node_name,)):
            wanted = convert
        return QuantTypeInfo.load_from_dict(wanted, default_qtype, default_symmetric, default_reduce_range)

    def pprint_str(self, indent: int | None = None) -> str:
        return json.dumps(self.overrides, default=_printable, indent=indent)

    def empty(self) -> bool:
        return not self.overrides

    def get_dict(self) -> dict[str, list[Overrides]]:
        return self.overrides


def _printable(value: Any) -> Any:
    return sorted(value) if isinstance(value, set) else str(value)


def _check_tensor(name: str, wanted: Any, initializers: dict[str, Any], activations: set[str], default_type: Any) -> None:
    if name not in initializers and name not in activations:
        raise ValueError(f"TensorQuantOverrides names the tensor {name!r}, which the model does not have")
    if not isinstance(wanted, list):
        raise ValueError(f"TensorQuantOverrides: {name!r} has {type(wanted).__name__}, a list of dicts was expected")
    for entry in wanted:
        if not isinstance(entry, dict):
            raise ValueError(f"TensorQuantOverrides: {name!r} has a list of {type(entry).__name__}, dicts were expected")
        _check_entry(name, entry)
    if not wanted:
        return
    if "axis" in wanted[0]:
        _check_channels(name, wanted, initializers)
    elif len(wanted) > 1:
        raise ValueError(
            f"TensorQuantOverrides: {name!r} has {len(wanted)} dicts; the first needs an axis if they are for channels"
        )
    elif "convert" in wanted[0]:
        _check_convert(name, wanted[0], initializers, default_type)


def _check_entry(name: str, entry: Overrides) -> None:
    given = [parameter for parameter in PARAMETERS if parameter in entry]
    if len(given) == 1:
        raise ValueError(f"TensorQuantOverrides: {name!r} has {given[0]} alone; scale and zero_point come together")
    both = [setting for setting in SETTINGS if setting in entry]
    if given and both:
        raise ValueError(f"TensorQuantOverrides: {name!r} has scale and zero_point, so {', '.join(both)} must not be there")
    if "quant_type" in entry and not isinstance(entry["quant_type"], QuantType):
        raise ValueError(
            f"TensorQuantOverrides: the quant_type of {name!r} is {entry['quant_type']!r}, a QuantType was expected"
        )
    if "scale" in entry and not (float(entry["scale"]) > 0):
        raise ValueError(f"TensorQuantOverrides: the scale of {name!r} is {entry['scale']}; it must be above 0")


def _check_channels(name: str, wanted: list[Overrides], initializers: dict[str, Any]) -> None:
    tensor = initializers.get(name)
    if tensor is None:
        raise ValueError(f"TensorQuantOverrides: {name!r} has an axis, but only initializers are quantized by channel")
    axis, rank = wanted[0]["axis"], len(tensor.dims)
    if not -rank <= axis < rank:
        raise ValueError(f"TensorQuantOverrides: {name!r} of shape {list(tensor.dims)} has no axis {axis}")
    if len(wanted) not in (1, tensor.dims[axis]):
        raise ValueError(
            f"TensorQuantOverrides: {name!r} has {tensor.dims[axis]} channels along axis {axis} and {len(wanted)} dicts"
        )
    for setting in ("axis", "quant_type", "symmetric", "reduce_range"):
        if any(entry.get(setting, wanted[0].get(setting)) != wanted[0].get(setting) for entry in wanted):
            raise ValueError(f"TensorQuantOverrides: all channels of {name!r} have one {setting}")
    if any("convert" in entry for entry in wanted):
        raise ValueError(f"TensorQuantOverrides: {name!r} is quantized by channel and cannot be converted")


def _check_convert(name: str, entry: Overrides, initializers: dict[str, Any], default_type: Any) -> None:
    convert = entry["convert"]
    if name in initializers:
        raise ValueError(f"TensorQuantOverrides: {name!r} is an initializer; only activations are converted")
    if "quant_type" not in convert:
        raise ValueError(f"TensorQuantOverrides: convert of {name!r} names no quant_type")
    _check_entry(name, convert)
    own = entry["quant_type"].tensor_type if "quant_type" in entry else default_type
    if convert["quant_type"].tensor_type == own:
        raise ValueError(f"TensorQuantOverrides: {name!r} would be converted to the type it has, {convert['quant_type']}")
    receivers = convert.get("recv_nodes")
    if receivers is not None and not receivers:
        raise ValueError(f"TensorQuantOverrides: convert of {name!r} has no receivers")
