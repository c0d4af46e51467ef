"""The signatures that we typed are those that onnxruntime has."""

import onnx
import onnx.helper
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as state

from sardonyx import ops
from sardonyx.ops import schemas

ops.load_families()
DOMAINS = ("com.microsoft", "com.microsoft.nchwc")
THEIRS = {(schema.domain, schema.name): schema for schema in state.get_all_operator_schema() if schema.domain in DOMAINS}
OURS = [(domain, name) for domain in DOMAINS for name in schemas.operators(domain) if (domain, name) in THEIRS]


@pytest.mark.parametrize(("domain", "name"), OURS)
def test_inputs_and_outputs(domain, name):
    theirs, mine = THEIRS[domain, name], schemas.versions(domain, name)[1]
    allowed = {constraint.type_param_str: set(constraint.allowed_type_strs) for constraint in theirs.type_constraints}
    for given, wanted in ((mine.inputs, theirs.inputs), (mine.outputs, theirs.outputs)):
        assert [parameter.name for parameter in given] == [formal.name for formal in wanted]
        for parameter, formal in zip(given, wanted, strict=True):
            assert parameter.type_string == formal.typeStr, parameter.name
            assert parameter.types >= allowed.get(formal.typeStr, {formal.typeStr}), parameter.name
            assert parameter.optional == (formal.option.name == "Optional"), parameter.name
            assert parameter.variadic == (formal.option.name == "Variadic"), parameter.name
            assert parameter.homogeneous == formal.isHomogeneous, parameter.name


@pytest.mark.parametrize(("domain", "name"), OURS)
def test_attributes(domain, name):
    theirs, mine = THEIRS[domain, name].attributes, schemas.versions(domain, name)[1].attributes
    assert {name for name in mine if not name.startswith("__")} == theirs.keys()  # names that begin so are our own
    for attribute, definition in theirs.items():
        assert mine[attribute].kind.name == definition.type.name
        assert mine[attribute].required == definition.required
        default = default_of(definition)
        # where the text of the op names a default that its schema lacks, ours may have it
        if default is not None:
            assert mine[attribute].default == (pytest.approx(default, rel=1e-6) if isinstance(default, float) else default)


def default_of(definition):
    proto = onnx.AttributeProto.FromString(definition._default_value)
    value = onnx.helper.get_attribute_value(proto) if proto.type else None
    return value.decode() if isinstance(value, bytes) else value
