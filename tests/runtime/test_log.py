"""Log lines on stderr in onnxruntime's form, severities, Python's logging for applications that use it,
and what is said of providers without nodes."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.providers.kernel_table import KernelTable
from sardonyx.providers.provider import ExecutionProvider
from tests.runtime import models

LINE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{9} \[%s:onnxruntime:%s, [\w.]+:\d+ \w+\] %s"
UNUSED = models.parsed("g (float[N,3] x) => (float[N,3] y) <float[2] w = {1.0, 2.0}> { y = Add(x, x) }")


def stderr_of(program: str) -> str:
    text = f"import sardonyx, numpy as np\nMODEL = {UNUSED!r}\n{program}"
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stderr


def test_warnings_are_written_to_stderr() -> None:
    text = stderr_of("o = sardonyx.SessionOptions(); o.logid = 'me'; sardonyx.InferenceSession(MODEL, o)")
    assert re.fullmatch(LINE % ("W", "me", r"Initializer 'w' is not used by any node.*\n"), text)


def test_what_belongs_to_no_session_has_the_default_id() -> None:
    text = stderr_of(
        "o = sardonyx.SessionOptions(); o.add_session_config_entry('a', '1'); o.add_session_config_entry('a', '2')"
    )
    assert re.fullmatch(LINE % ("W", "Default", r"Config with key \[a\] has the value \[1\] already.*\n"), text)


def test_the_default_severity_rules() -> None:
    assert stderr_of("sardonyx.set_default_logger_severity(3); sardonyx.InferenceSession(MODEL)") == ""
    text = stderr_of("sardonyx.set_default_logger_severity(1); sardonyx.InferenceSession(MODEL)")
    assert re.search(LINE % ("I", "", "Initializing session."), text)


def test_a_session_may_have_its_own_severity() -> None:
    program = """
o = sardonyx.SessionOptions()
o.log_severity_level = %d
sardonyx.InferenceSession(MODEL, o)
o.log_severity_level = 4
sardonyx.InferenceSession(MODEL, o)
"""
    assert stderr_of(program % 4) == ""
    assert stderr_of(program % 1).count("Initializing session.") == 1


def test_a_failing_node_is_an_error_line_with_the_id_of_the_run() -> None:
    text = stderr_of("""
o = sardonyx.SessionOptions()
o.log_severity_level = 3
r = sardonyx.RunOptions()
r.logid = "run7"
try:
    sardonyx.InferenceSession(MODEL, o).run(None, {"x": np.ones((2, 3), np.float32)}, r)
    sardonyx.InferenceSession(MODEL, o).run(None, {"x": None}, r)
except sardonyx.errors.Fail:
    pass
""")
    assert text == ""  # nothing ran: the feed was refused
    text = stderr_of("""
from onnx import parser
m = parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g (float[N] x, int64[K] s) => (float[M] y) { y = Reshape(x, s) }')
r = sardonyx.RunOptions()
r.logid = "run7"
try:
    sardonyx.InferenceSession(m).run(None, {"x": np.ones(4, np.float32), "s": np.array([3])}, r)
except sardonyx.errors.Fail:
    pass
""")
    assert re.fullmatch(LINE % ("E", "run7", r"Non-zero status code returned while running Reshape node.*\n"), text)


def test_applications_get_the_records_through_logging(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.WARNING):
        sardonyx.InferenceSession(UNUSED)
    assert any("'w' is not used" in record.getMessage() for record in caplog.records)
    assert capfd.readouterr().err == ""


# --- providers that were asked for in vain

FUSED = models.parsed("g (float[2,3] x, float[3,4] w) => (float[2,4] y) { p = Gemm(x, w) y = Relu(p) }")
RECTIFIERS = KernelTable("RectifierExecutionProvider")


@RECTIFIERS.kernel("Relu")
def relu(X: np.ndarray) -> np.ndarray:
    return np.maximum(X, 0)


class RectifierExecutionProvider(ExecutionProvider):
    name = "RectifierExecutionProvider"
    kernels = RECTIFIERS


class StandardRectifier(RectifierExecutionProvider):
    standard_ops_only = True


def idle_records(caplog: pytest.LogCaptureFixture, model: bytes, factory: Any) -> list[tuple[int, str]]:
    """What a session with a provider of a user's says of providers without nodes: levels and messages."""
    name = RectifierExecutionProvider.name
    sardonyx.register_provider(name, factory)
    try:
        with caplog.at_level(logging.INFO, logger="sardonyx"):
            sardonyx.InferenceSession(model, providers=[name, "CPUExecutionProvider"])
    finally:
        sardonyx.unregister_provider(name)
    return [(record.levelno, record.getMessage()) for record in caplog.records if "gets no node" in record.getMessage()]


def test_a_provider_whose_ops_were_fused_away_is_a_warning_that_says_what_to_set(caplog: pytest.LogCaptureFixture) -> None:
    ((level, message),) = idle_records(caplog, FUSED, RectifierExecutionProvider)
    assert level == logging.WARNING
    assert message.startswith("RectifierExecutionProvider gets no node.")
    assert "(FusedGemm)" in message and "standard_ops_only = True" in message


def test_a_provider_that_is_given_the_ops_of_onnx_gets_its_node(caplog: pytest.LogCaptureFixture) -> None:
    assert idle_records(caplog, FUSED, StandardRectifier) == []


@pytest.mark.parametrize("factory", [RectifierExecutionProvider, StandardRectifier])
def test_a_provider_that_has_no_kernel_for_the_model_is_an_information(caplog: pytest.LogCaptureFixture, factory: Any) -> None:
    assert idle_records(caplog, UNUSED, factory) == [(logging.INFO, "RectifierExecutionProvider gets no node.")]


def test_the_cpu_without_nodes_is_nothing_to_speak_of(caplog: pytest.LogCaptureFixture) -> None:
    alone = models.parsed("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    assert idle_records(caplog, alone, RectifierExecutionProvider) == []


# --- settings of the log


def test_logging_is_as_before_after_a_verbose_session() -> None:
    logger = logging.getLogger("sardonyx")
    before = logger.level
    options = sardonyx.SessionOptions()
    options.log_severity_level = 0
    sardonyx.InferenceSession(UNUSED, options)
    assert logger.level == before


@pytest.mark.parametrize("severity", [-1, 5])
def test_severities_are_checked(severity: int) -> None:
    with pytest.raises(RuntimeError, match="Invalid logging severity. 0:Verbose, 1:Info, 2:Warning, 3:Error, 4:Fatal"):
        sardonyx.set_default_logger_severity(severity)
    sardonyx.set_default_logger_verbosity(1)


def test_an_application_that_logs_everything_hears_no_information_of_ours() -> None:
    before, after = stderr_of(
        "import logging, sys; logging.basicConfig(level=logging.DEBUG); sardonyx.InferenceSession(MODEL)\n"
        "logging.getLogger('sardonyx').setLevel(logging.INFO); sys.stderr.write('asked'); sardonyx.InferenceSession(MODEL)"
    ).split("asked")
    assert "INFO" not in before and "DEBUG" not in before and "Initializing session." in after
