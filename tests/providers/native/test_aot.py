"""Models compiled ahead of time compute what sessions compute that compile, bit for bit, and nothing is compiled for that."""

from __future__ import annotations

import os
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx import errors
from sardonyx.compiler import linking
from sardonyx.compiler.jit import jit
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.settings import ALLOW_COMPILED_CODE_VARIABLE
from tests.providers.native.aot_models import (
    BRANCHING,
    DYNAMIC,
    MIXED,
    check,
    compile_model,
    conv_net,
    dynamic_feeds,
    is_used,
    options,
    payload_of,
    python,
    random,
    same,
    write,
)

# --- round trips


@pytest.mark.parametrize("embed", [False, True])
def test_sizes_that_vary(tmp_path: Path, embed: bool) -> None:
    path = write(tmp_path / "m.onnx", DYNAMIC)
    feeds = [dynamic_feeds(n, s, t) for n, s, t in ((1, 1, 1), (2, 5, 3), (3, 17, 40), (0, 4, 2), (2, 5, 3))]
    check(path, *feeds, embed=embed)
    assert payload_of(tmp_path / "m_ctx.onnx").exists() is not embed


def test_several_programs_with_nodes_in_numpy_between(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", MIXED)
    feeds = [{"x": random.standard_normal((n, 4)).astype(np.float32), "k": np.array([1])} for n in (1, 6, 30)]
    session = check(path, *feeds)
    names = [step.node.op_type for step in session._engine.plan.steps]
    assert names.count("EPContext") == 2 and "ReduceSum" in names


def test_programs_inside_of_branches(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", BRANCHING)
    x = random.standard_normal(7).astype(np.float32)
    check(path, {"flag": np.array(True), "x": x}, {"flag": np.array(False), "x": x})


@pytest.mark.parametrize("nodes", ["y = Relu(a)", "b = Sigmoid(a) y = Mul(a, b)"], ids=["in float16", "widened"])
def test_half_precision(nodes: str, tmp_path: Path) -> None:
    text = f"g (float16[N, 6] x) => (float16[N, 5] y) <float16[6, 5] w = {{WEIGHTS}}> {{ a = MatMul(x, w) {nodes} }}"
    path = write(tmp_path / "m.onnx", text.replace("WEIGHTS", ", ".join(map(str, range(30)))))
    check(path, *({"x": random.standard_normal((n, 6)).astype(np.float16)} for n in (1, 9)))


def test_convolutions(tmp_path: Path) -> None:
    path = conv_net(tmp_path / "m.onnx", 64)
    check(path, *({"x": random.standard_normal((n, 3, h, h + 4)).astype(np.float32)} for n, h in ((1, 32), (2, 48))))


def test_a_large_batch_runs_in_parts(tmp_path: Path) -> None:
    path = conv_net(tmp_path / "m.onnx", 64)
    session = check(path, {"x": random.standard_normal((40, 3, 64, 64)).astype(np.float32)})
    (step,) = session._engine.plan.steps
    (shape,) = step.call._shapes.values()
    assert shape.parts > 1
    wanted = sardonyx.InferenceSession(path).memory_plan().peak(N=40, H=64, W=64)
    assert session.memory_plan().peak(N=40, H=64, W=64) == wanted


def test_lstm(tmp_path: Path) -> None:
    weights = [
        numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)
        for name, shape in {"W": (2, 32, 6), "R": (2, 32, 8), "B": (2, 64)}.items()
    ]
    graph = helper.make_graph(
        [helper.make_node("LSTM", ["X", "W", "R", "B"], ["Y", "h", "c"], hidden_size=8, direction="bidirectional")],
        "g",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["T", "N", 6])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("Y", "h", "c")],
        weights,
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    check(path, *({"X": random.standard_normal((t, n, 6)).astype(np.float32)} for t, n in ((1, 1), (7, 3))))


def test_trees(tmp_path: Path) -> None:
    trees, attributes = 20, {name: [] for name in ("ids", "tree", "feature", "value", "mode", "true", "false")}
    targets: dict[str, list[Any]] = {"tree": [], "node": [], "weight": []}
    for tree in range(trees):
        for node in range(7):
            leaf = node > 2
            for name, value in zip(
                attributes,
                (
                    node,
                    tree,
                    node % 4,
                    float(random.standard_normal()),
                    "LEAF" if leaf else "BRANCH_LEQ",
                    2 * node + 1,
                    2 * node + 2,
                ),
            ):
                attributes[name].append(0 if leaf and name in ("true", "false") else value)
            if leaf:
                targets["tree"].append(tree), targets["node"].append(node), targets["weight"].append(float(random.random()))
    node = helper.make_node(
        "TreeEnsembleRegressor",
        ["X"],
        ["Y"],
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_nodeids=attributes["ids"],
        nodes_treeids=attributes["tree"],
        nodes_featureids=attributes["feature"],
        nodes_values=attributes["value"],
        nodes_modes=attributes["mode"],
        nodes_truenodeids=attributes["true"],
        nodes_falsenodeids=attributes["false"],
        target_treeids=targets["tree"],
        target_nodeids=targets["node"],
        target_ids=[0] * len(targets["tree"]),
        target_weights=targets["weight"],
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, ["N", 1])],
    )
    path = tmp_path / "m.onnx"
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    check(path, *({"X": random.standard_normal((n, 4)).astype(np.float32)} for n in (1, 50)))


def test_suppression_stays_native(tmp_path: Path) -> None:
    text = """g (float[1, B, 4] boxes, float[1, 2, B] scores) => (int64[K, 3] chosen, float[1, 2, B] s)
    <int64[1] most = {5}, float[1] overlap = {0.5}>
    { s = Sigmoid(scores) chosen = NonMaxSuppression(boxes, s, most, overlap) }"""
    path = write(tmp_path / "m.onnx", text)
    corners = np.sort(random.random((1, 30, 2, 2)), axis=2).transpose(0, 1, 2, 3).reshape(1, 30, 4).astype(np.float32)
    session = check(path, {"boxes": corners, "scores": random.standard_normal((1, 2, 30)).astype(np.float32)})
    assert all(step.provider.name == "NativeExecutionProvider" for step in session._engine.plan.steps)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_any_number_of_threads(tmp_path: Path, threads: int) -> None:
    """Also more than there were when it was compiled: what each thread needs for itself is laid out when a session is made."""
    path = conv_net(tmp_path / "m.onnx", 64)
    target = compile_model(path)
    feeds = {"x": random.standard_normal((2, 3, 40, 40)).astype(np.float32)}
    wanted = sardonyx.InferenceSession(path, options(threads=1)).run(None, feeds)
    session = sardonyx.InferenceSession(target, options(threads=threads))
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, feeds)[0], wanted[0], rtol=1e-4, atol=1e-3)


def test_many_callers_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", DYNAMIC)
    session = sardonyx.InferenceSession(compile_model(path), options())
    feeds = [dynamic_feeds(2, s, s) for s in range(1, 9)]
    wanted = [sardonyx.InferenceSession(path).run(None, one) for one in feeds]
    failed: list[Exception] = []

    def work(number: int) -> None:
        try:
            for _ in range(20):
                same(session.run(None, feeds[number]), wanted[number])
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(feeds))]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failed


def test_the_ort_format(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", MIXED)
    target = compile_model(path, target=tmp_path / "m_ctx.ort")
    session = sardonyx.InferenceSession(target, options())
    assert is_used(session)
    feeds = {"x": random.standard_normal((9, 4)).astype(np.float32), "k": np.array([1])}
    same(session.run(None, feeds), sardonyx.InferenceSession(path).run(None, feeds))
    with pytest.raises(errors.InvalidArgument, match="cannot hold compiled code"):
        compile_model(path, embed=True, target=tmp_path / "embedded.ort")


def test_a_session_of_a_compiled_model_can_be_pickled(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", DYNAMIC)
    session = pickle.loads(pickle.dumps(sardonyx.InferenceSession(compile_model(path), options())))
    assert is_used(session)


# --- no work


def test_nothing_is_lowered_compiled_or_optimized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = compile_model(conv_net(tmp_path / "m.onnx"))
    before = jit().compilations, len(jit()._code)

    def never(*arguments: Any, **keywords: Any) -> None:
        raise AssertionError("a compiled model needs nothing of this")

    monkeypatch.setattr(Lowerer, "lower", never)
    monkeypatch.setattr(type(jit()), "addresses", never)
    monkeypatch.setattr("sardonyx.optimizer.pipeline.optimize", never)
    session = sardonyx.InferenceSession(target, options())
    session.run(None, {"x": np.zeros((1, 3, 32, 32), np.float32)})
    assert (jit().compilations, len(jit()._code)) == before


def test_heavy_modules_are_not_imported(tmp_path: Path) -> None:
    target = compile_model(write(tmp_path / "m.onnx", DYNAMIC))
    program = f"""
import sys, numpy as np, sardonyx
session = sardonyx.InferenceSession({str(target)!r})
session.run(None, {{"x": np.ones((1, 2, 8), np.float32), "m": np.ones((1, 1, 2), np.float32)}})
print(*(name for name in sys.modules if name.startswith(("llvmlite", "onnx.", "sardonyx.optimizer", "sardonyx.providers.cpu",
    "sardonyx.providers.scalars", "sardonyx.compiler.builder", "sardonyx.compiler.jit", "sardonyx.providers.native.program.lowering"))))
"""
    allowed = {"onnx.onnx_ml_pb2", "sardonyx.providers.cpu", "sardonyx.providers.cpu.table"}
    assert set(python(program, **{ALLOW_COMPILED_CODE_VARIABLE: "1"}).stdout.split()) <= allowed


def test_llvm_is_not_needed(tmp_path: Path) -> None:
    if not linking.can_map():
        pytest.skip("code is linked by LLVM here")
    target = compile_model(write(tmp_path / "m.onnx", DYNAMIC))
    program = f"""
import sys, numpy as np
sys.modules["llvmlite"] = None
import sardonyx
session = sardonyx.InferenceSession({str(target)!r})
print(session._engine._compiled is not None)
print(session.run(None, {{"x": np.ones((1, 2, 8), np.float32), "m": np.ones((1, 1, 2), np.float32)}})[0].shape)
"""
    assert python(program, **{ALLOW_COMPILED_CODE_VARIABLE: "1"}).stdout.split("\n")[:2] == ["True", "(1, 2, 2)"]


@pytest.mark.parametrize("text", [DYNAMIC, MIXED], ids=["whole", "mixed"])
def test_the_ort_format_needs_numpy_alone(tmp_path: Path, text: str) -> None:
    if not linking.can_map():
        pytest.skip("code is linked by LLVM here")
    target = compile_model(write(tmp_path / "m.onnx", text), target=tmp_path / "m_ctx.ort")
    program = f"""
import sys, numpy as np
for name in ("llvmlite", "onnx", "google", "google.protobuf", "flatbuffers", "rich"):
    sys.modules[name] = None
import sardonyx
session = sardonyx.InferenceSession({str(target)!r})
types = {{"tensor(int64)": np.int64, "tensor(float)": np.float32}}
feeds = {{one.name: np.ones([s if isinstance(s, int) else 2 for s in one.shape], types[one.type]) for one in session.get_inputs()}}
print(session._engine._compiled is not None, len(session.run(None, feeds)))
"""
    assert python(program, **{ALLOW_COMPILED_CODE_VARIABLE: "1"}).stdout.startswith("True")


def test_sessions_of_one_file_share_its_memory(tmp_path: Path) -> None:
    target = compile_model(conv_net(tmp_path / "m.onnx"))
    first, second = (sardonyx.InferenceSession(target, options())._engine._compiled.context for _ in range(2))
    assert first is not None and second is not None and list(first.constants) == list(second.constants)


def test_a_forked_child_runs(tmp_path: Path) -> None:
    if not hasattr(os, "fork") or not linking.can_map():
        pytest.skip("nothing forks here, or LLVM is needed")
    target = compile_model(conv_net(tmp_path / "m.onnx", 64))
    program = f"""
import os, sys, numpy as np
sys.modules["llvmlite"] = None
import sardonyx
session = sardonyx.InferenceSession({str(target)!r})
feeds = {{"x": np.ones((2, 3, 40, 40), np.float32)}}
wanted = session.run(None, feeds)[0]
child = os.fork()
if not child:
    os._exit(0 if np.array_equal(session.run(None, feeds)[0], wanted) else 3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert python(program, **{ALLOW_COMPILED_CODE_VARIABLE: "1"}).stdout.strip() == "0"


@pytest.mark.parametrize("llvm", [True, False])
def test_steps_are_timed(tmp_path: Path, llvm: bool) -> None:
    if not llvm and not linking.can_map():
        pytest.skip("LLVM is needed")
    target = compile_model(write(tmp_path / "m.onnx", DYNAMIC))
    program = f"""
import json, sys, numpy as np
{"" if llvm else 'sys.modules["llvmlite"] = None'}
import sardonyx
options = sardonyx.SessionOptions()
options.enable_profiling = True
options.profile_file_prefix = {str(tmp_path / "trace")!r}
session = sardonyx.InferenceSession({str(target)!r}, options)
session.run(None, {{"x": np.ones((1, 2, 8), np.float32), "m": np.ones((1, 1, 2), np.float32)}})
print(sum("MatMul" in json.dumps(event) for event in json.load(open(session.end_profiling()))))
"""
    assert int(python(program, **{ALLOW_COMPILED_CODE_VARIABLE: "1"}).stdout) > 0


# --- data that compiled code does not take


def test_shapes_of_another_form_go_to_the_source(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "m.onnx", DYNAMIC)
    target = compile_model(path)
    session = sardonyx.InferenceSession(target, options())
    feeds = dynamic_feeds(2, 3, 3) | {"m": np.ones((1, 1, 3), np.float32)}  # the model says that the first sizes are equal
    wanted = sardonyx.InferenceSession(path).run(None, feeds)
    for _ in range(4):
        for mine, his in zip(session.run(None, feeds), wanted, strict=True):
            np.testing.assert_allclose(mine, his, rtol=1e-5, atol=1e-5)
    assert sum("does not take this data" in record.getMessage() for record in caplog.records) == 1
    path.unlink()
    fresh = sardonyx.InferenceSession(target, options())
    with pytest.raises(errors.Fail, match="is not there"):
        fresh.run(None, feeds)
    assert fresh.run(None, dynamic_feeds(1, 2, 2))


def test_bad_data_is_told_as_it_would_be(tmp_path: Path) -> None:
    text = "g (float[N, 4] x, int64[K] i) => (float[K, 4] y) { a = Exp(x) y = Gather(a, i) }"
    path = write(tmp_path / "m.onnx", text)
    session = sardonyx.InferenceSession(compile_model(path), options())
    with pytest.raises(errors.InvalidArgument, match="indices element out of data bounds"):
        session.run(None, {"x": np.ones((2, 4), np.float32), "i": np.array([5])})


def test_inner_values_come_from_the_source(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", DYNAMIC)
    session = sardonyx.InferenceSession(compile_model(path), options())
    feeds = dynamic_feeds(1, 2, 2)
    np.testing.assert_allclose(session.run(["s"], feeds)[0], sardonyx.InferenceSession(path).run(["s"], feeds)[0], rtol=1e-5)


# --- the original's ways


def test_session_options_write_a_context(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", DYNAMIC)
    given = options(ep__context_enable="1", ep__context_node_name_prefix="left_")
    first = sardonyx.InferenceSession(path, given)
    target = tmp_path / "m_ctx.onnx"
    (node,) = onnx.load(target).graph.node
    assert (node.op_type, node.domain, node.name[:5]) == ("EPContext", "com.microsoft", "left_")
    attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    assert attributes["main_context"] == 1 and attributes["embed_mode"] == 0
    assert attributes["source"] == b"NativeExecutionProvider" and attributes["ep_cache_context"] == b"m_ctx.onnx.bin"
    feeds = dynamic_feeds(2, 4, 4)
    same(sardonyx.InferenceSession(target, options()).run(None, feeds), first.run(None, feeds))
    with pytest.raises(errors.Fail, match="exist already"):
        sardonyx.InferenceSession(path, given)
    elsewhere = tmp_path / "other.onnx"
    sardonyx.InferenceSession(
        path, options(ep__context_enable="1", ep__context_file_path=str(elsewhere), ep__context_embed_mode="1")
    )
    assert is_used(sardonyx.InferenceSession(elsewhere.read_bytes(), options()))
    anew = options(ep__context_enable="1", ep__context_file_path=str(tmp_path / "x.onnx"))
    assert not is_used(sardonyx.InferenceSession(target, anew))  # a compiled model is compiled anew from its source
    assert is_used(sardonyx.InferenceSession(tmp_path / "x.onnx", options()))


def test_bytes_with_a_file_beside_need_to_be_told_where(tmp_path: Path) -> None:
    target = compile_model(write(tmp_path / "m.onnx", DYNAMIC))
    session = sardonyx.InferenceSession(target.read_bytes(), options(ep__context_file_path=str(target)))
    assert is_used(session)


def test_model_compiler_to_bytes_and_streams(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", DYNAMIC)
    compiler = sardonyx.ModelCompiler(sardonyx.SessionOptions(), path.read_bytes())
    pieces: list[bytes] = []
    compiler.compile_to_stream(pieces.append)
    assert b"".join(pieces) == compiler.compile_to_bytes()
    assert is_used(sardonyx.InferenceSession(b"".join(pieces), options()))
    with pytest.raises(errors.InvalidArgument, match="must not be empty"):
        compiler.compile_to_file("")


@pytest.mark.parametrize("embed", [False, True])
def test_a_model_of_bytes_is_kept_for_sessions_that_do_not_use_its_code(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, embed: bool
) -> None:
    source = write(tmp_path / "m.onnx", DYNAMIC).read_bytes()
    target = tmp_path / "m_ctx.onnx"
    sardonyx.ModelCompiler(sardonyx.SessionOptions(), source, embed).compile_to_file(target)
    feeds = dynamic_feeds(1, 2, 2)
    plain = sardonyx.InferenceSession(target)
    assert not is_used(plain) and "its machine code is not trusted" in caplog.text
    same(plain.run(None, feeds), sardonyx.InferenceSession(source).run(None, feeds))
    trusting = sardonyx.InferenceSession(target, options())
    assert is_used(trusting)
    other = dynamic_feeds(2, 3, 3) | {"m": np.ones((1, 1, 3), np.float32)}  # the model says that the first sizes are equal
    for mine, his in zip(trusting.run(None, other), sardonyx.InferenceSession(source).run(None, other), strict=True):
        np.testing.assert_allclose(mine, his, rtol=1e-5, atol=1e-5)
    assert "The model inside of it is compiled for that." in caplog.text


def test_a_source_too_large_to_be_kept_is_missed_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sardonyx.runtime.saving.contexts.MAX_KEPT_SOURCE", 1)
    source = write(tmp_path / "m.onnx", DYNAMIC).read_bytes()
    made = sardonyx.ModelCompiler(sardonyx.SessionOptions(), source).compile_to_bytes()
    with pytest.raises(errors.Fail, match=r"is not known.*is not used: its machine code is not trusted.* set session\..* to 1"):
        sardonyx.InferenceSession(made)


def test_compiled_data_can_be_kept_by_functions(tmp_path: Path) -> None:
    store: dict[str, bytes] = {}
    compiler = sardonyx.ModelCompiler(sardonyx.SessionOptions(), write(tmp_path / "m.onnx", DYNAMIC))
    compiler.set_ep_context_data_write_func(lambda name, data: store.update({name: data.read(0, 10) + data.read(10)}))
    model = compiler.compile_to_bytes()

    def read(name: str, buffer: sardonyx.OrtEpContextDataBuffer) -> None:
        buffer.allocate(len(store[name]))
        buffer.write(store[name][:100])
        buffer.write(store[name][100:], 100)

    given = options()
    given.set_ep_context_data_read_func(read, 1 << 30)
    session = sardonyx.InferenceSession(model, given)
    assert is_used(session) and session.run(None, dynamic_feeds(1, 2, 2))


def test_model_compiler_checks_its_arguments(tmp_path: Path) -> None:
    given = sardonyx.SessionOptions()
    with pytest.raises(ValueError, match="path is empty"):
        sardonyx.ModelCompiler(given, "")
    with pytest.raises(ValueError, match="bytes array is empty"):
        sardonyx.ModelCompiler(given, b"")
    with pytest.raises(errors.InvalidArgument, match="does not exist"):
        sardonyx.ModelCompiler(given, str(tmp_path / "none.onnx"))
    path = write(tmp_path / "m.onnx", "g (string[N] x) => (string[N] y) { y = Identity(x) }")
    strict = sardonyx.ModelCompiler(given, path, flags=sardonyx.OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED)
    with pytest.raises(errors.Fail, match="Unable to compile any nodes"):
        strict.compile_to_file(tmp_path / "out.onnx")
    sardonyx.ModelCompiler(given, path).compile_to_file(tmp_path / "out.onnx")
    assert onnx.load(tmp_path / "out.onnx").graph.node
    careful = sardonyx.ModelCompiler(given, path, flags=sardonyx.OrtCompileApiFlags.ERROR_IF_OUTPUT_FILE_EXISTS)
    with pytest.raises(errors.Fail, match="exists already"):
        careful.compile_to_file(tmp_path / "out.onnx")
