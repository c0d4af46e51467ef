"""Code out of a file is run only where somebody trusts it, on the CPUs that it is for, and if all of it makes sense."""

from __future__ import annotations

import json
import platform
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sardonyx
from sardonyx import errors
from sardonyx.compiler import linking
from sardonyx.compiler.jit import jit
from sardonyx.ir import dim
from sardonyx.providers.native.aot import container, cpu, opening
from sardonyx.providers.native.program.size_terms import BadSize, CallsRead, CallsTold, dim_of, source_of, terms_of
from sardonyx.settings import ALLOW_COMPILED_CODE, ALLOW_COMPILED_CODE_VARIABLE
from tests.providers.native.aot_models import (
    DYNAMIC,
    compile_model,
    conv_net,
    dynamic_feeds,
    is_used,
    log_of,
    options,
    payload_of,
    python,
    same,
    write,
)

# --- code is run only where somebody says that it may


def test_code_is_not_run_unless_it_is_trusted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "m.onnx", DYNAMIC)
    target = compile_model(path)
    session, log = log_of(caplog, lambda: sardonyx.InferenceSession(target, options(allow=False)))
    assert not is_used(session)
    assert (
        log.count("the compiled code is not used") == 1 and ALLOW_COMPILED_CODE in log and ALLOW_COMPILED_CODE_VARIABLE in log
    )
    feeds = dynamic_feeds(2, 3, 3)
    same(session.run(None, feeds), sardonyx.InferenceSession(path).run(None, feeds))


def test_the_environment_can_allow_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = compile_model(write(tmp_path / "m.onnx", DYNAMIC))
    monkeypatch.setenv(ALLOW_COMPILED_CODE_VARIABLE, "1")
    assert is_used(sardonyx.InferenceSession(target))


@pytest.mark.parametrize("allow", [True, False])
def test_without_a_main_context_there_is_no_session(tmp_path: Path, allow: bool) -> None:
    target = compile_model(write(tmp_path / "m.onnx", DYNAMIC))
    model = onnx.load(target, load_external_data=False)
    for attribute in model.graph.node[0].attribute:
        if attribute.name == "main_context":
            attribute.i = 0
    target.write_bytes(model.SerializeToString())
    with pytest.raises(errors.Fail, match="cannot be compiled anew: there are 0 main contexts instead of one"):
        sardonyx.InferenceSession(target, options(allow=allow))


def test_without_code_and_source_there_is_no_session(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", DYNAMIC)
    target = compile_model(path)
    path.rename(tmp_path / "elsewhere.onnx")
    with pytest.raises(errors.Fail, match="the model that it was made from, 'm.onnx', is not there"):
        sardonyx.InferenceSession(target, options(allow=False))
    given = options(allow=False, ep__context_source_model_path=str(tmp_path / "elsewhere.onnx"))
    assert sardonyx.InferenceSession(target, given).run(None, dynamic_feeds(1, 2, 2))
    (tmp_path / "m.onnx").write_bytes((tmp_path / "elsewhere.onnx").read_bytes() + b"\0")
    with pytest.raises(errors.Fail, match="is not the model that it was made from"):
        sardonyx.InferenceSession(target, options(allow=False))
    assert is_used(sardonyx.InferenceSession(target, options()))  # with the code nobody asks for the source


def test_a_source_outside_of_the_folder_is_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", DYNAMIC)
    (tmp_path / "inner").mkdir()
    target = compile_model(path, target=tmp_path / "inner" / "m_ctx.onnx")
    proto = onnx.load(target)
    (name,) = (one for one in proto.graph.node[0].attribute if one.name == "onnx_model_filename")
    assert name.s == b"m.onnx"
    name.s = b"../m.onnx"
    onnx.save(proto, target)
    with pytest.raises(errors.Fail, match="is not there"):
        sardonyx.InferenceSession(target, options(allow=False))


def test_numpy_alone_takes_the_source(tmp_path: Path) -> None:
    target = compile_model(write(tmp_path / "m.onnx", DYNAMIC))
    session = sardonyx.InferenceSession(target, options(), providers=[("CPUExecutionProvider", {"native": "0"})])
    assert not is_used(session)
    assert all(step.provider.name == "CPUExecutionProvider" for step in session._engine.plan.steps)


# --- other CPUs


def test_another_kind_of_cpu_compiles_anew(tmp_path: Path) -> None:
    if jit().target.name not in cpu.LEVELS[1:]:
        pytest.skip("there is no lesser kind of this CPU")
    path = conv_net(tmp_path / "m.onnx")
    target = compile_model(path)
    lesser = cpu.LEVELS[cpu.LEVELS.index(jit().target.name) - 1]
    program = f"""
import numpy as np, sardonyx
session = sardonyx.InferenceSession({str(target)!r})
print(session._engine._compiled is None, session.run(None, {{"x": np.ones((1, 3, 16, 16), np.float32)}})[0].sum())
"""
    done = python(program, **{ALLOW_COMPILED_CODE_VARIABLE: "1", "SARDONYX_CPU": lesser})
    assert done.stdout.startswith("True")
    assert f"it is for {jit().target.name}, SARDONYX_CPU asks for {lesser}. The model is compiled anew" in done.stderr
    wanted = sardonyx.InferenceSession(path).run(None, {"x": np.ones((1, 3, 16, 16), np.float32)})[0].sum()
    assert float(done.stdout.split()[1]) == pytest.approx(float(wanted), rel=1e-4)


def test_code_for_a_lesser_cpu_runs(tmp_path: Path) -> None:
    if jit().target.name not in cpu.LEVELS[1:]:
        pytest.skip("there is no lesser kind of this CPU")
    path = write(tmp_path / "m.onnx", DYNAMIC)
    target = tmp_path / "m_ctx.onnx"
    program = (
        f"import sardonyx; sardonyx.ModelCompiler(sardonyx.SessionOptions(), {str(path)!r}).compile_to_file({str(target)!r})"
    )
    python(program, SARDONYX_CPU="sse2")
    session = sardonyx.InferenceSession(target, options())
    assert is_used(session)
    feeds = dynamic_feeds(2, 5, 5)
    for mine, his in zip(session.run(None, feeds), sardonyx.InferenceSession(path).run(None, feeds), strict=True):
        np.testing.assert_allclose(mine, his, rtol=1e-4, atol=1e-4)


def test_what_a_cpu_lacks_is_named() -> None:
    assert cpu.refusal("pdp11", "avx2", []) is not None
    reason = cpu.refusal(platform.machine(), "avx9000", ["sse2", "avx9000f"])
    assert reason is not None and "this CPU lacks avx9000f" in reason
    assert cpu.refusal(platform.machine(), jit().target.name, cpu.needed_by(jit().target)) is None


def test_a_level_that_there_is_not_is_refused_for_compiled_models_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CPU", "foo")
    with pytest.raises(errors.InvalidArgument, match="SARDONYX_CPU must be one of sse2, avx2, avx512, avx512vnni, not 'foo'"):
        cpu.refusal(platform.machine(), "avx2", [])


# --- damage


def edited(target: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the description in a payload, and make checksum and model fit to it again: what somebody could do on purpose."""
    payload = payload_of(target)
    data = bytearray(payload.read_bytes())
    fields = list(container._HEADER.unpack_from(data))
    room = container.HEADER_BYTES + fields[3]
    description = json.loads(data[container.HEADER_BYTES : room])
    change(description)
    text = json.dumps(description, separators=(",", ":")).encode()
    assert len(text) <= fields[3] + 4096 - fields[3] % 4096 - 1
    data[container.HEADER_BYTES : container.HEADER_BYTES + max(len(text), fields[3])] = text.ljust(fields[3])
    fields[3] = max(len(text), fields[3])
    header = container._HEADER.pack(*fields)[:-32]
    digest = container._digest(header, bytes(data[container.HEADER_BYTES : fields[4]]))
    data[: len(header) + 32] = header + digest
    payload.write_bytes(data)
    proto = onnx.load(target)
    for node in proto.graph.node:
        for attribute in node.attribute:
            if attribute.name == "notes":
                attribute.s = f"{opening.DIGEST_NOTE}{digest.hex()}".encode()
    onnx.save(proto, target)


def refused(target: Path, caplog: pytest.LogCaptureFixture, reason: str) -> None:
    session, log = log_of(caplog, lambda: sardonyx.InferenceSession(target, options()))
    assert not is_used(session) and reason in log and log.count("compiled code is not used") == 1
    assert session.run(None, dynamic_feeds(1, 2, 2))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data[:100], "does not begin like one"),
        (lambda data: b"", "does not begin like one"),
        (lambda data: data[:-64], "bytes and should have"),
        (lambda data: b"X" + data[1:], "does not begin like one"),
        (lambda data: data[:8] + struct.pack("<I", 99) + data[12:], "its format is 99"),
        (lambda data: data[:300] + b"?" + data[301:], "checksum is wrong"),
        (lambda data: data[:5000] + bytes([data[5000] ^ 1]) + data[5001:], "checksum is wrong"),
    ],
)
def test_damage_is_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[bytes], bytes], reason: str
) -> None:
    target = compile_model(write(tmp_path / "m.onnx", DYNAMIC))
    payload_of(target).write_bytes(damage(payload_of(target).read_bytes()))
    refused(target, caplog, reason)


def test_a_missing_payload_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    target = compile_model(write(tmp_path / "m.onnx", DYNAMIC))
    payload_of(target).unlink()
    refused(target, caplog, "does not exist")


def test_the_payload_of_another_model_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    target = compile_model(write(tmp_path / "m.onnx", DYNAMIC))
    other = compile_model(write(tmp_path / "o.onnx", DYNAMIC.replace("Gelu", "Relu")))
    payload_of(other).replace(payload_of(target))
    refused(target, caplog, "belongs to another model")


def test_damaged_constants_are_noticed_on_request(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    target = compile_model(write(tmp_path / "m.onnx", DYNAMIC))
    assert is_used(sardonyx.InferenceSession(target, options(session__verify_compiled_constants="1")))
    data = bytearray(payload_of(target).read_bytes())
    (total,) = struct.unpack_from("<Q", data, 32)
    described = json.loads(data[128 : 128 + struct.unpack_from("<Q", data, 16)[0]])
    data[described["constants"][0][0]] ^= 1
    assert total == len(data)
    payload_of(target).write_bytes(data)
    assert is_used(sardonyx.InferenceSession(target, options()))
    session, log = log_of(caplog, lambda: sardonyx.InferenceSession(target, options(session__verify_compiled_constants="1")))
    assert not is_used(session) and "checksum of its constants" in log


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.pop("programs"),
        lambda d: d["programs"][0].pop("rules"),
        lambda d: d["programs"][0].update(inputs=7),
        lambda d: d["programs"][0]["rules"].update(ranks=[3]),
        lambda d: d["programs"][0]["rules"]["numbers"].__setitem__(0, "__import__('os').abort()"),
        lambda d: d["programs"][0]["rules"]["numbers"].__setitem__(0, [[1, ["abort", 1, 2]]]),
        lambda d: d["programs"][0]["rules"]["numbers"].__setitem__(0, [[1, 99]]),
        lambda d: d["programs"][0]["rules"]["numbers"].__setitem__(0, [[1, [999]]]),
        lambda d: d["programs"][0]["rules"]["numbers"].__setitem__(0, [[1, [-1]]]),
        lambda d: d["programs"][0].update(calls=[["max", 1, [[1, [0]]]]]),
        lambda d: d["programs"][0].update(calls=[["max", 1, 2], *(["max", 1, [[1, [number]]]] for number in range(50))]),
        lambda d: d["programs"][0].update(calls=[[]]),
        lambda d: d["programs"][0].pop("calls"),
        lambda d: d["programs"][0]["rules"]["numbers"].pop(),
        lambda d: d["programs"][0]["rules"]["places"].__setitem__(0, [0, 9, 0, 1]),
        lambda d: d["programs"][0]["rules"]["places"].__setitem__(0, [0, 0, 0, 0]),
        lambda d: d["programs"][0]["rules"]["places"].__setitem__(0, ["0] + abort() + shapes[0", 0, 0, 1]),
        lambda d: d["programs"][0]["lengths"].__setitem__(0, 10**9),
        lambda d: d["programs"][0]["lengths"].__setitem__(0, -1),
        lambda d: d["programs"][0]["lengths"].__setitem__(0, 0),
        lambda d: d["programs"][0].update(arrays=99),
        lambda d: d["programs"][0]["buffers"].pop() if d["programs"][0]["buffers"] else d["programs"][0].pop("buffers"),
        lambda d: d["programs"][0]["outputs"].pop(),
        lambda d: d["programs"][0]["outputs"][0].__setitem__(0, 12345),
        lambda d: d["programs"][0]["labels"].pop(),
        lambda d: d["programs"][0].update(name="other"),
        lambda d: d["programs"][0].update(flops="many"),
        lambda d: d["programs"][0].update(batch=["N", [4, 4, 4], 0]),
        lambda d: d["programs"][0].update(batch=["?", [4, 4, 4, 4], 0]),
        lambda d: d["programs"][0].update(batch=["N", [0, 0, 4, 4], 0]),
        lambda d: d["programs"][0].update(batch=["N", [1000, 4, 4, 4], 0]),
        lambda d: d["programs"][0].update(batch=["N", [4, 4, 8, 4], 0]),
        lambda d: d["programs"].append(3),
        lambda d: d["constants"].pop(),
        lambda d: d["constants"][0].__setitem__(0, 10**12),
        lambda d: d["constants"][0].__setitem__(0, d["constants"][0][0] + 1),
        lambda d: d["code"]["places"].__setitem__(0, 10**9),
        lambda d: d["code"]["places"].pop(),
        lambda d: d["kernels"].pop(),
        lambda d: d["code"].update(section=77),
        lambda d: d["sections"].__setitem__(0, [-5, 10]),
        lambda d: d.update(abi=[1]),
        lambda d: d["cpu"].pop("features"),
        lambda d: d.update(cpu=None),
        lambda d: d.update(machine="other"),
    ],
)
def test_programs_that_make_no_sense_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: Callable[[dict[str, Any]], None]
) -> None:
    target = compile_model(write(tmp_path / "m.onnx", DYNAMIC))
    edited(target, change)
    refused(target, caplog, "The model is compiled anew")


def test_model_and_program_must_fit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    target = compile_model(write(tmp_path / "m.onnx", DYNAMIC))
    proto = onnx.load(target)
    proto.graph.node[0].input.append("x")
    onnx.save(proto, target)
    refused(target, caplog, "has 3 inputs and 2 outputs, its program 2 and 2")


def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    target = compile_model(write(tmp_path / "m.onnx", DYNAMIC))
    proto = onnx.load(target)
    (name,) = (one for one in proto.graph.node[0].attribute if one.name == "ep_cache_context")
    name.s = b"../../etc/passwd"
    onnx.save(proto, target)
    refused(target, caplog, "escapes model directory")


def test_contexts_of_others_are_not_ours(tmp_path: Path) -> None:
    target = compile_model(write(tmp_path / "m.onnx", DYNAMIC))
    proto = onnx.load(target)
    (source,) = (one for one in proto.graph.node[0].attribute if one.name == "source")
    source.s = b"QNNExecutionProvider"
    onnx.save(proto, target)
    with pytest.raises(errors.NotImplemented, match="EPContext"):
        sardonyx.InferenceSession(target, options())


# --- its parts


SYMBOLS = ("n", "m", "k")
sizes = st.recursive(
    st.integers(-50, 50) | st.sampled_from([dim.symbol(name) for name in SYMBOLS]),
    lambda inner: st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: a * b, inner, inner),
        st.builds(dim.floordiv, inner, st.integers(1, 9)),
        st.builds(dim.mod, inner, st.integers(1, 9)),
        st.builds(dim.minimum, inner, inner),
        st.builds(dim.maximum, inner, inner),
    ),
    max_leaves=6,
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(sizes, st.lists(st.integers(0, 30), min_size=3, max_size=3))
def test_sizes_survive_as_plain_lists(size: Any, values: list[int]) -> None:
    bindings = dict(zip(SYMBOLS, values))
    if any(symbol.name not in SYMBOLS for symbol in dim.symbols(size)):
        return  # too large to be kept as it was
    terms, told = terms_of(size, {name: number for number, name in enumerate(SYMBOLS)}, {}), CallsTold()
    stored, calls = json.loads(json.dumps([told.size(terms), told.calls]))
    form = CallsRead(calls).size(stored)
    wanted = dim.evaluate(size, bindings)
    assert eval(source_of(form, SYMBOLS), {}, bindings) == wanted
    assert dim.evaluate(dim_of(form, SYMBOLS), bindings) == wanted


@pytest.mark.parametrize(
    "form",
    ["x", 1.5, True, None, [], [[]], [["1"]], [[1, 3]], [[1, -1]], [[1, ["min", 1]]], [[1, ["open", 1, 2]]], {}, [[1, "n"]]],
)
def test_other_things_are_no_sizes(form: Any) -> None:
    with pytest.raises(BadSize):
        source_of(form, SYMBOLS)
    with pytest.raises(BadSize):
        dim_of(form, SYMBOLS)


def test_sizes_are_not_nested_without_end() -> None:
    form: Any = 1
    for _ in range(200):
        form = [[1, ["min", form, 2]]]
    with pytest.raises(BadSize):
        source_of(form, SYMBOLS)


def test_objects_serve_where_there_are_no_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linking, "can_map", lambda: False)
    path = write(tmp_path / "m.onnx", DYNAMIC)
    target = compile_model(path)
    data = payload_of(target).read_bytes()
    assert container.read(memoryview(data)).description["code"]["kind"] == "objects"
    feeds = dynamic_feeds(2, 3, 3)
    session = sardonyx.InferenceSession(target, options())
    assert is_used(session)
    same(session.run(None, feeds), sardonyx.InferenceSession(path).run(None, feeds))


@pytest.mark.skipif(not linking.can_map(), reason="no images here")
def test_what_cannot_be_linked_is_refused() -> None:
    with pytest.raises(linking.CannotLink):
        linking.link({"f": b"\x7fELF" + b"\0" * 100})
