"""The commonest mistakes of users: each raises the class of onnxruntime, with the words that programs look for in the text.

What is around these words is our own: it names more, and the way out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.runtime import models
from tests.runtime.side_by_side import BOTH, Raised, outcome

Use = Callable[[ModuleType], Any]
X = np.ones((2, 3), np.float32)
TWO = models.parsed("g (float[N] a, float[M] b) => (float[K] y) { y = Add(a, b) }")
FIXED = models.parsed("g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }")


def fed(model: bytes = models.DOUBLE, names: Any = None, **feeds: Any) -> Use:
    return lambda ort: ort.InferenceSession(model).run(names, feeds)


def ran(text: str, *operands: Any) -> Use:
    """A node of `text` between inputs of open sizes."""
    names = "abcd"[: len(operands)]
    kinds = {"f": "float", "i": "int64", "b": "bool", "O": "string"}
    declared = ", ".join(
        f"{kinds[operand.dtype.kind]}[{', '.join(f'{name.upper()}{axis}' for axis in range(operand.ndim))}] {name}"
        for name, operand in zip(names, operands, strict=True)
    )
    model = models.parsed(f"g ({declared}) => ({text.partition('|')[0]}) {{ {text.partition('|')[2]} }}")
    return fed(model, **dict(zip(names, operands, strict=True)))


def edited(change: Callable[[onnx.ModelProto], Any], base: bytes = models.DOUBLE) -> Use:
    model = onnx.load_model_from_string(base)
    change(model)
    return made(model.SerializeToString())


def made(model: Any = models.DOUBLE, *arguments: Any, **named: Any) -> Use:
    return lambda ort: ort.InferenceSession(model, *arguments, **named)


def typed(text: str) -> Use:
    return made(models.parsed(text))


def optioned(**values: Any) -> Use:
    def use(ort: ModuleType) -> Any:
        options = ort.SessionOptions()
        for name, value in values.items():
            setattr(options, name, value)
        return ort.InferenceSession(models.DOUBLE, options)

    return use


def configured(key: Any, value: Any) -> Use:
    def use(ort: ModuleType) -> Any:
        options = ort.SessionOptions()
        options.add_session_config_entry(key, value)
        return ort.InferenceSession(models.DOUBLE, options)

    return use


def bound(*binds: Callable[[ModuleType, Any], Any]) -> Use:
    """A run with what `binds` do to a binding."""

    def use(ort: ModuleType) -> Any:
        session = ort.InferenceSession(models.DOUBLE)
        binding = session.io_binding()
        for bind in binds:
            bind(ort, binding)
        session.run_with_iobinding(binding)

    return use


def input_of(value: Any, name: str = "x") -> Callable[[ModuleType, Any], Any]:
    return lambda ort, binding: binding.bind_cpu_input(name, value)


def output_of(name: str = "y", *arguments: Any) -> Callable[[ModuleType, Any], Any]:
    return lambda ort, binding: binding.bind_output(name, *arguments)


def value_of(array: Any, name: str = "y") -> Callable[[ModuleType, Any], Any]:
    return lambda ort, binding: binding.bind_ortvalue_output(name, ort.OrtValue.ortvalue_from_numpy(array))


def with_values(names: Any = None, **feeds: np.ndarray) -> Use:
    return lambda ort: ort.InferenceSession(models.DOUBLE).run_with_ort_values(
        names, {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in feeds.items()}
    )


def terminated(ort: ModuleType) -> Any:
    options = ort.RunOptions()
    options.terminate = True
    return ort.InferenceSession(models.DOUBLE).run(None, {"x": X}, options)


def overridden(ort: ModuleType) -> Any:
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("N", 4)
    return ort.InferenceSession(models.DOUBLE, options).run(None, {"x": X})


def second_binding(ort: ModuleType) -> Any:
    first, second = ort.InferenceSession(models.DOUBLE), ort.InferenceSession(models.DOUBLE)
    first.run_with_iobinding(second.io_binding())


def _operator(op_type: str, domain: str = "", *, imported: bool = True, **attributes: Any) -> Callable[[onnx.ModelProto], None]:
    """Make the only node another one, of one input."""

    def change(model: onnx.ModelProto) -> None:
        model.graph.node[0].CopyFrom(helper.make_node(op_type, ["x"], ["y"], domain=domain, **attributes))
        if domain and imported:
            model.opset_import.add(domain=domain, version=1)

    return change


def _set(path: str, value: Any) -> Callable[[onnx.ModelProto], None]:
    *steps, last = path.split(".")

    def change(model: onnx.ModelProto) -> None:
        where: Any = model
        for step in steps:
            where = where[int(step)] if step.isdigit() else getattr(where, step)
        setattr(where, last, value)

    return change


def _append(node: onnx.NodeProto) -> Callable[[onnx.ModelProto], None]:
    return lambda model: model.graph.node.append(node)


def _short_weight(model: onnx.ModelProto) -> None:
    tensor = model.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.raw_data = b"\0" * 4


BIND = [input_of(X), output_of()]
MISTAKES: dict[str, tuple[Use, str]] = {
    # what is fed
    "a wrong name": (fed(zz=X), "Required inputs (['x']) are missing from input feed (['zz'])."),
    "nothing": (fed(), "Required inputs (['x']) are missing from input feed ([])."),
    "one of two": (fed(TWO, a=X[0]), "Required inputs (['b']) are missing from input feed (['a'])."),
    "one too many": (fed(x=X, zz=X), "Invalid input name: zz"),
    "a constant": (fed(models.WEIGHT, x=X[0, :2], w=X[0, :2]), "Invalid input name: w"),
    "too few axes": (fed(x=X[0]), "Invalid rank for input: x Got: 1 Expected: 2"),
    "too many axes": (fed(x=X[None]), "Invalid rank for input: x Got: 3 Expected: 2"),
    "a wrong size": (
        fed(x=np.ones((2, 4), np.float32)),
        "Got invalid dimensions for input: x for the following indices\n index: 1 Got: 4 Expected: 3",
    ),
    "two wrong sizes": (
        fed(FIXED, x=np.ones((3, 4), np.float32)),
        " index: 0 Got: 3 Expected: 2\n index: 1 Got: 4 Expected: 3",
    ),
    "no rows": (fed(FIXED, x=np.ones((0, 3), np.float32)), " index: 0 Got: 0 Expected: 2"),
    "float64": (
        fed(x=X.astype(np.float64)),
        "Unexpected input data type. Actual: (tensor(double)) , expected: (tensor(float))",
    ),
    "integers": (fed(x=X.astype(np.int64)), "Unexpected input data type. Actual: (tensor(int64)) , expected: (tensor(float))"),
    "halves": (
        fed(x=X.astype(np.float16)),
        "Unexpected input data type. Actual: (tensor(float16)) , expected: (tensor(float))",
    ),
    "texts": (fed(x=np.array([["a"]])), "Unexpected input data type. Actual: (tensor(string)) , expected: (tensor(float))"),
    "a ragged list": (fed(x=[[1.0, 2.0], [3.0]]), "Could not create tensor from given input list"),
    "a list of texts": (fed(x=[["a", "b", "c"]]), "Could not create tensor from given input list"),
    "a tuple": (fed(x=(1.0,)), "Input must be a list of dictionaries or a single numpy array for input 'x'."),
    "a range": (fed(x=range(3)), "Input must be a list of dictionaries or a single numpy array for input 'x'."),
    "a tuple of arrays": (fed(x=(X[0],)), "should be given as array for input 'x'."),
    "a number": (fed(x=1.0), "Unable to handle object of type <class 'float'>"),
    "None": (fed(x=None), "Missing Input: x"),
    "a dict for a tensor": (fed(x={"a": 1.0}), "Unexpected input data type. Actual: ((map(string,tensor(float))))"),
    "dates": (fed(x=np.zeros((1, 3), "M8[s]")), "can't be converted to MLDataType."),
    "a list for the feed": (lambda ort: ort.InferenceSession(models.DOUBLE).run(None, [X]), "has no attribute 'keys'"),
    "an array for the feed": (lambda ort: ort.InferenceSession(models.DOUBLE).run(None, X), "has no attribute 'keys'"),
    "the feed first": (lambda ort: ort.InferenceSession(models.DOUBLE).run({"x": X}), "missing 1 required positional argument"),
    "an unknown output": (fed(names=["zz"], x=X), "Invalid output name:zz"),
    "an output as a text": (fed(names="y", x=X), "incompatible function arguments"),
    "an output by number": (fed(names=[0], x=X), "incompatible function arguments"),
    "a dict for run options": (
        lambda ort: ort.InferenceSession(models.DOUBLE).run(None, {"x": X}, {"a": 1}),
        "incompatible function arguments",
    ),
    "an ended run": (terminated, "Exiting due to terminate flag being set to true."),
    "OrtValues of a wrong type": (with_values(x=X.astype(np.int64)), "Unexpected input data type. Actual: (tensor(int64))"),
    "OrtValues of a wrong rank": (with_values(x=X[0]), "Invalid rank for input: x Got: 1 Expected: 2"),
    "OrtValues and an unknown output": (with_values(["zz"], x=X), "Invalid output name:zz"),
    "arrays for OrtValues": (
        lambda ort: ort.InferenceSession(models.DOUBLE).run_with_ort_values(None, {"x": X}),
        "'numpy.ndarray' object has no attribute '_",
    ),
    "an OrtValue of a list": (
        lambda ort: ort.OrtValue.ortvalue_from_numpy([1.0]),
        "Creation of OrtValues is currently only supported from non-string numpy arrays",
    ),
    "an OrtValue of negative size": (
        lambda ort: ort.OrtValue.ortvalue_from_shape_and_type([-2, 3], np.float32),
        "Tensor shape.Size() must be >= 0",
    ),
    # what is bound
    "nothing bound": (bound(), "Error in execution: At least one output should be requested."),
    "no output bound": (bound(BIND[0]), "Error in execution: At least one output should be requested."),
    "no input bound": (bound(BIND[1]), "Error in execution: "),
    "an unknown input bound": (bound(input_of(X, "zz")), "Failed to find NodeArg with name: zz in the def list"),
    "an unknown output bound": (bound(BIND[0], output_of("zz")), "Error in execution: Invalid output name: zz"),
    "too few axes bound": (bound(input_of(X[0]), BIND[1]), "Error in execution: Invalid rank for input: x Got: 1 Expected: 2"),
    "a wrong size bound": (
        bound(input_of(np.ones((2, 4), np.float32)), BIND[1]),
        "Error in execution: Got invalid dimensions for input: x for the following indices\n index: 1 Got: 4 Expected: 3",
    ),
    "a wrong type bound": (
        bound(input_of(X.astype(np.int64)), BIND[1]),
        "Error in execution: Unexpected input data type. Actual: (tensor(int64)) , expected: (tensor(float))",
    ),
    "an output of another shape": (
        bound(BIND[0], value_of(np.ones((4, 3), np.float32))),
        "The output OrtValue provided for output 'y'",
    ),
    "an output of another type": (bound(BIND[0], value_of(X.astype(np.int64))), "Unexpected"),
    "a pointer without a shape": (
        bound(output_of("y", "cpu", 0, np.float32, None, X.ctypes.data)),
        "`element_type` and `shape` are to be provided if pre-allocated memory is provided",
    ),
    "an unknown device": (bound(output_of("y", "foo")), "foo"),
    "the binding of another session": (second_binding, "IOBinding must be used with the session that created it."),
    # what is loaded
    "no such file": (made("/nowhere/missing.onnx"), "Load model from /nowhere/missing.onnx failed:Load model "),
    "an empty path": (made(""), ""),
    "None for a model": (made(None), "Unable to load from type '<class 'NoneType'>'"),
    "no bytes": (made(b""), "No graph was found in the protobuf."),
    "noise": (made(b"\xff" * 60), "Failed to load model because protobuf parsing failed."),
    "the end is missing": (made(models.DOUBLE[:-9]), "protobuf parsing failed."),
    "a new IR version": (edited(_set("ir_version", 99)), "Unsupported model IR version: 99, max supported IR version: "),
    "a new opset": (
        edited(_set("opset_import.0.version", 99)),
        "Opset 99 is under development and support for this is limited.",
    ),
    "no opset": (edited(lambda model: model.ClearField("opset_import")), "Missing opset in the model."),
    "an unknown op": (edited(_operator("Foo")), "Error No Op registered for Foo with domain_version of 17"),
    "an op of a later opset": (edited(_operator("Gelu")), "Error No Op registered for Gelu with domain_version of 17"),
    "an op of an unknown domain": (edited(_operator("Foo", "my.dom")), "Fatal error: my.dom:Foo("),
    "an unknown op of Microsoft": (edited(_operator("Foo", "com.microsoft")), ") is not a registered function/op"),
    "a domain that is not imported": (
        edited(_operator("Foo", "my.dom", imported=False)),
        "Error No opset import for domain 'my.dom'",
    ),
    "an unknown attribute": (edited(_operator("Neg", foo=1)), "Error Unrecognized attribute: foo for operator Neg"),
    "a missing attribute": (edited(_operator("Cast")), "Error Required attribute 'to' is missing."),
    "an attribute of a wrong type": (
        edited(_operator("LeakyRelu", alpha=1)),
        "Error Mismatched attribute type in ' : alpha'. Expected: 'FLOAT', actual: 'INT'",
    ),
    "too few inputs": (
        edited(_operator("Add")),
        "Error Node with schema(::Add:14) has input size 1 not in range [min=2, max=2].",
    ),
    "an input that nobody computes": (
        edited(lambda model: model.graph.node[0].input.__setitem__(0, "q")),
        "Invalid model. Node input 'q' is not a graph input, initializer, or output of a previous node.",
    ),
    "an output that nobody computes": (
        edited(lambda model: model.graph.output.append(helper.make_tensor_value_info("zz", TensorProto.FLOAT, [1]))),
        "This is an invalid model. Graph output (zz) does not exist in the graph.",
    ),
    "a value twice": (edited(_append(helper.make_node("Neg", ["x"], ["y"]))), "Duplicate definition of name (y)"),
    "an input twice": (edited(lambda model: model.graph.input.append(model.graph.input[0])), "Duplicate definition"),
    "a circle": (
        edited(
            lambda model: (
                model.graph.node[0].input.__setitem__(0, "t"),
                model.graph.node.append(helper.make_node("Neg", ["y"], ["t"])),
            )
        ),
        "the graph is not acyclic",
    ),
    "another type than declared": (
        edited(_set("graph.output.0.type.tensor_type.elem_type", TensorProto.INT64)),
        "Type Error: Type (tensor(int64)) of output arg (y) of node (",
    ),
    "a type that the op does not take": (
        edited(_set("graph.input.0.type.tensor_type.elem_type", TensorProto.STRING)),
        "Type Error: Type 'tensor(string)' of input parameter (x) of operator (Add) in node (",
    ),
    "two types of one name": (
        typed("g (float[2] x, int64[2] w) => (float[2] y) { y = Add(x, w) }"),
        "Type Error: Type parameter (T) of Optype (Add) bound to different types (tensor(float) and tensor(int64) in node (",
    ),
    "too few bytes of a weight": (
        edited(_short_weight, models.WEIGHT),
        "raw_data size (4 bytes) does not match expected size from shape and data type (8 bytes)",
    ),
    "a weight of negative size": (
        edited(lambda model: model.graph.initializer[0].dims.__setitem__(0, -2), models.WEIGHT),
        "Out of bounds dimensions",
    ),
    "a weight of no type": (
        edited(_set("graph.initializer.0.data_type", 99), models.WEIGHT),
        "Tensor 'w' does not have valid data type",
    ),
    "sizes that do not fit MatMul": (
        typed("g (float[2,3] x, float[4,5] w) => (float[2,5] y) { y = MatMul(x, w) }"),
        "[ShapeInferenceError] Incompatible dimensions for matrix multiplication",
    ),
    "sizes that do not fit Add": (
        typed("g (float[2,3] x, float[4,5] w) => (float[2,5] y) { y = Add(x, w) }"),
        "[ShapeInferenceError] Incompatible dimensions",
    ),
    "sizes that do not fit Split": (
        typed("g (float[5] x) => (float[2] y, float[2] z) <int64[2] s = {2,2}> { y, z = Split(x, s) }"),
        "Mismatch between the sum of 'split' (4) and the split dimension of the input (5)",
    ),
    "an axis that is not there": (
        typed("g (float[2,3] x) => (float[2,6] y) { y = Concat<axis=5>(x, x) }"),
        "axis must be in [-rank, rank-1]",
    ),
    # what fails in a run
    "MatMul": (ran("float[P,Q] y | y = MatMul(a, b)", X, np.ones((4, 5), np.float32)), "MatMul dimension mismatch"),
    "Gemm": (ran("float[P,Q] y | y = Gemm(a, b)", X, np.ones((4, 5), np.float32)), "GEMM: Dimension mismatch"),
    "Add": (
        ran("float[P,Q] y | y = Add(a, b)", X, np.ones((2, 4), np.float32)),
        "Attempting to broadcast an axis by a dimension other than 1. 3 by 4",
    ),
    "Concat": (
        ran("float[P,Q] y | y = Concat<axis=0>(a, b)", X, np.ones((4, 5), np.float32)),
        "Non concat axis dimensions must match: Axis 1 has mismatched dimensions of 5 and 3",
    ),
    "Reshape": (
        ran("float[P] y | y = Reshape(a, b)", X, np.array([4])),
        "The input tensor cannot be reshaped to the requested shape. Input shape:{2,3}, requested shape:{4}",
    ),
    "Reshape to two open sizes": (
        ran("float[P,Q] y | y = Reshape(a, b)", X, np.array([-1, -1])),
        "At most one dimension can be -1",
    ),
    "Gather": (
        ran("float[P,Q] y | y = Gather(a, b)", X, np.array([5])),
        "indices element out of data bounds, idx=5 must be within the inclusive range [-2,1]",
    ),
    "Slice": (
        ran("float[P,Q] y | y = Slice(a, b, c, d)", X, np.array([0]), np.array([1]), np.array([5])),
        "'axes' has an axis outside of the tensor dimension count",
    ),
    "Squeeze": (ran("float[P] y | y = Squeeze(a, b)", X, np.array([0])), "Dimension of input 0 must be 1 instead of 2"),
    "Pad": (
        ran("float[P,Q] y | y = Pad(a, b)", X, np.array([1, 1, 1])),
        "Pads tensor size should be equal to twice the input dimension count",
    ),
    "Conv": (
        ran("float[P,Q,R,S] y | y = Conv(a, b)", np.ones((1, 1, 2, 2), np.float32), np.ones((1, 1, 5, 5), np.float32)),
        "Invalid input shape: {2,2}",
    ),
    "Div": (ran("int64[P] y | y = Div(a, b)", np.ones(3, np.int64), np.zeros(3, np.int64)), "Integer division by zero"),
    # how a session is made
    "an unknown provider": (
        lambda ort: ort.InferenceSession(models.DOUBLE).set_providers(["FooExecutionProvider"]),
        "Unknown Provider Type: FooExecutionProvider",
    ),
    "a dict for the options": (made(models.DOUBLE, {"a": 1}), "incompatible constructor arguments"),
    "providers for the options": (made(models.DOUBLE, ["CPUExecutionProvider"]), "incompatible constructor arguments"),
    "an unknown option": (optioned(foo=1), "SessionOptions' object has no attribute 'foo'"),
    "threads as a text": (optioned(intra_op_num_threads="2"), "incompatible function arguments"),
    "a level as a text": (optioned(graph_optimization_level="all"), "incompatible function arguments"),
    "no pools for all sessions": (
        optioned(use_per_session_threads=False),
        "When the session is not configured to use per session threadpools",
    ),
    "a size that was fixed otherwise": (overridden, " index: 0 Got: 2 Expected: 4"),
    "a key that is no text": (configured("a", 1), "incompatible function arguments"),
    "an empty key": (configured("", "1"), "Config key is empty or longer than maximum length 1024"),
    "a long value": (configured("a", "1" * 9000), "Config value is longer than maximum length"),
    "ORT format as it is not": (configured("session.load_model_format", "ORT"), "ORT model verification failed."),
    "a key that is not set": (
        lambda ort: ort.SessionOptions().get_session_config_entry("zz"),
        "SessionOptions does not have configuration with key: zz",
    ),
    "a library that is not there": (lambda ort: ort.SessionOptions().register_custom_ops_library("/nope.so"), "/nope.so"),
    "an unknown severity": (lambda ort: ort.set_default_logger_severity(9), "Invalid logging severity"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered_with_the_words_of_onnxruntime(name: str) -> None:
    use, words = MISTAKES[name]
    check(use, words)


def check(use: Use, words: str) -> None:
    """Both raise the same class, the words are in both texts, and whatever frame the original gives them is ours, too."""
    theirs, ours = (outcome(use, api) for api in BOTH)
    assert isinstance(theirs, Raised) and words in theirs.text, f"onnxruntime: {theirs!r}"
    assert isinstance(ours, Raised) and ours.kind == theirs.kind and words in ours.text, (
        f"onnxruntime: {theirs!r}\nsardonyx:    {ours!r}"
    )
    if theirs.text.startswith("[ONNXRuntimeError]"):
        frame, _, _ = theirs.text.partition(" : " + theirs.text.split(" : ", 3)[3])
        assert ours.text.startswith(f"{frame} : ")


def external(location: str, size: int | None) -> Callable[[Path, ModuleType], Any]:
    def use(folder: Path, ort: ModuleType) -> Any:
        (folder / "m.onnx").write_bytes(models.external_weight(location))
        if size is not None:
            (folder / "w.bin").write_bytes(b"\0" * size)
        return ort.InferenceSession(str(folder / "m.onnx"))

    return use


def written(content: bytes, name: str = "m.onnx") -> Callable[[Path, ModuleType], Any]:
    def use(folder: Path, ort: ModuleType) -> Any:
        (folder / name).write_bytes(content)
        return ort.InferenceSession(str(folder / name))

    return use


REFUSED = "External data path validation failed for initializer: w. Error: "
MISTAKES_IN_FILES: dict[str, tuple[Callable[[Path, ModuleType], Any], str]] = {
    "noise": (written(b"\xff" * 50), " failed:Protobuf parsing failed."),
    "a page of the web": (written(b"<!DOCTYPE html><html></html>"), " failed:Protobuf parsing failed."),
    "a pointer of git": (
        written(b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\n"),
        " failed:Protobuf parsing failed.",
    ),
    "an empty file": (written(b""), "No graph was found in the protobuf."),
    "noise in the ORT format": (written(b"\xff" * 50, "m.ort"), "ORT model verification failed."),
    "external data that is not there": (external("w.bin", None), REFUSED),
    "external data by an absolute path": (
        external("/etc/passwd", None),
        "Absolute path not allowed for external data location",
    ),
    "external data outside": (external("../w.bin", None), REFUSED + "External data path escapes model directory."),
    "external data that is too short": (
        external("w.bin", 4),
        "External initializer: w offset: 0 size to read: 8 given file_length: 4 are out of bounds or can not be read in full.",
    ),
}


@pytest.mark.parametrize("name", MISTAKES_IN_FILES)
def test_a_mistake_in_a_file_is_answered_with_the_words_of_onnxruntime(name: str, tmp_path: Path) -> None:
    use, words = MISTAKES_IN_FILES[name]
    check(functools.partial(use, tmp_path), words)
