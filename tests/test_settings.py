"""Settings are declared in one table: nobody spells a key again, every declared one is read, and misspelt ones are refused,
as are values that a key of ours does not have."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import onnx.parser
import pytest

import sardonyx
from sardonyx import settings
from sardonyx.errors import InvalidArgument
from sardonyx.providers.cpu.provider import CPUExecutionProvider
from sardonyx.providers.null.provider import NullExecutionProvider
from sardonyx.providers.openvino.provider import OpenVINOExecutionProvider
from sardonyx.settings import Setting

ROOT = Path(sardonyx.__file__).parent
TABLES = {
    "session": settings.SESSION,
    "run": settings.RUN,
    "environment": settings.ENVIRONMENT,
    **settings.PROVIDER_OPTIONS,
}
KEY = re.compile(r"(session|optimization|ep|memory|sardonyx)\.[a-z_0-9.]+|(SARDONYX|ORT)_[A-Z_]{4,}")
"""What looks like the name of a setting."""
SOURCES = [path for path in sorted(ROOT.rglob("*.py")) if path.name != "settings.py"]
MODEL = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 21]> g (float[1] x) => (float[1] y) { y = Neg(x) }')


def literals(tree: ast.AST) -> Iterator[ast.Constant]:
    """Texts in a module that are not documentation."""
    for node in ast.walk(tree):
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str) and not isinstance(node, ast.Expr):
                yield inner


def is_module(name: str) -> bool:
    """Loggers, tables and entry points are called like packages of ours."""
    return name.startswith("sardonyx.") and find_spec(name.rstrip(".")) is not None


def test_keys_are_spelt_in_the_table_alone() -> None:
    for path in SOURCES:
        for literal in literals(ast.parse(path.read_text())):
            text = str(literal.value)
            assert not KEY.fullmatch(text) or is_module(text), f"{path}:{literal.lineno}: take {text} from sardonyx/settings.py"


def test_options_are_spelt_in_the_table_alone() -> None:
    spelt = re.compile(r"""\boptions(?:\.get\(|\[)["']""")
    for path in (ROOT / "providers").rglob("*.py"):
        assert not spelt.search(path.read_text()), f"{path}: take the names of options from sardonyx/settings.py"


def test_every_setting_is_read() -> None:
    words = {word for path in SOURCES for word in re.findall(r"\w+", path.read_text())}
    for name, value in vars(settings).items():
        if isinstance(value, Setting):
            assert name in words, f"nobody reads {value}"


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_declarations_are_whole(table: settings.Table) -> None:
    for name, setting in table.items():
        assert name == setting
        assert setting.meaning.endswith("."), f"{setting}: a sentence ends with a dot"
        if isinstance(setting.values, tuple) and setting.default:
            assert setting.default in setting.values


def test_an_unknown_key_of_ours_is_refused_with_the_nearest() -> None:
    options = sardonyx.SessionOptions()
    with pytest.raises(
        InvalidArgument, match=r"SessionOptions has no config key 'sardonyx.acuracy'; the nearest is 'sardonyx.accuracy'"
    ):
        options.add_session_config_entry("sardonyx.acuracy", "exact")
    with pytest.raises(InvalidArgument, match="'sardonyx.nchwc_transformer'"):
        options.add_session_config_entry("sardonyx.nchw_transformer", "1")
    options.add_session_config_entry("sardonyx.accuracy", "exact")


ENTRIES = [
    pytest.param(owner, add, setting, id=setting)
    for owner, add, table in (
        (sardonyx.SessionOptions, "add_session_config_entry", settings.SESSION),
        (sardonyx.RunOptions, "add_run_config_entry", settings.RUN),
    )
    for setting in table.values()
    if isinstance(setting.values, tuple)
]
"""Every key that lists its values, with the options that take it."""


@pytest.mark.parametrize(("owner", "add", "setting"), ENTRIES)
def test_a_value_that_a_key_of_ours_does_not_list_is_refused(owner: Any, add: str, setting: Setting) -> None:
    options = owner()
    for value in setting.values if setting.default else ("", *setting.values):
        getattr(options, add)(setting, value)
        assert setting.of(options._config.entries) == value
    before = dict(options._config.entries)
    for wrong in ("maybe", "True", " 1", setting.values[0] + "0", *([""] if setting.default else [])):
        if setting in settings.OURS:
            with pytest.raises(InvalidArgument, match=f"{setting} must be one of {', '.join(setting.values)}, not '{wrong}'"):
                getattr(options, add)(setting, wrong)
            assert options._config.entries == before
        else:
            getattr(owner(), add)(setting, wrong)


@pytest.mark.parametrize("key", ["sardonyx.accuracy", "session.map_files"])
def test_a_key_of_sessions_is_none_of_runs(key: str) -> None:
    with pytest.raises(InvalidArgument, match=f"RunOptions has no config key '{key}'"):
        sardonyx.RunOptions().add_run_config_entry(key, "1")


@pytest.mark.parametrize("key", ["session.use_env_allocators", "session.later", "optimization.x", "ep.mine.option", "anything"])
def test_keys_of_others_are_kept(key: str) -> None:
    options, run_options = sardonyx.SessionOptions(), sardonyx.RunOptions()
    options.add_session_config_entry(key, "1")
    run_options.add_run_config_entry(key, "1")
    assert options.get_session_config_entry(key) == run_options.get_run_config_entry(key) == "1"


@pytest.mark.parametrize("native", ["0", "1"])
def test_an_unknown_option_of_the_cpu_is_refused_with_the_nearest(native: str) -> None:
    with pytest.raises(InvalidArgument, match="CPUExecutionProvider has no option 'acuracy'; the nearest is 'accuracy'"):
        sardonyx.InferenceSession(MODEL, providers=[("CPUExecutionProvider", {"native": native, "acuracy": "exact"})])


@pytest.mark.parametrize("native", ["0", "1"])
def test_options_that_onnxruntime_ignores_are_ignored_with_a_warning(native: str, caplog: pytest.LogCaptureFixture) -> None:
    options = {"native": native, "arena_extend_strategy": "kSameAsRequested", "use_arena": "1"}
    session = sardonyx.InferenceSession(MODEL, providers=[("CPUExecutionProvider", options)])
    assert session.get_providers() == ["CPUExecutionProvider"]
    told = [record.message for record in caplog.records]
    for name in ("arena_extend_strategy", "use_arena"):
        assert sum(f"CPUExecutionProvider has no option '{name}'; it is ignored" in text for text in told) == 1


PROVIDERS: dict[str, Any] = {one.name: one for one in (CPUExecutionProvider, NullExecutionProvider, OpenVINOExecutionProvider)}
OPTIONS = [
    pytest.param(provider, setting, id=f"{provider}-{setting}")
    for provider, table in settings.PROVIDER_OPTIONS.items()
    for setting in table.values()
    if isinstance(setting.values, tuple)
]
"""Every option that lists its values."""


@pytest.mark.parametrize(("provider", "setting"), OPTIONS)
def test_a_value_that_an_option_does_not_list_is_refused(provider: str, setting: Setting) -> None:
    for wrong in ("maybe", "True", " 1", setting.values[0] + "0", ""):
        with pytest.raises(
            InvalidArgument, match=f"{provider}: {setting} must be one of {', '.join(setting.values)}, not '{wrong}'"
        ):
            PROVIDERS[provider]({setting: wrong})
    for value in setting.values:
        assert PROVIDERS[provider]({setting: value}).options == {setting: value}


def test_a_session_refuses_a_switch_that_is_neither_on_nor_off() -> None:
    with pytest.raises(InvalidArgument, match="CPUExecutionProvider: native must be one of 0, 1, not 'off'"):
        sardonyx.InferenceSession(MODEL, providers=[("CPUExecutionProvider", {"native": "off"})])


def test_options_of_other_providers_are_theirs() -> None:
    from sardonyx.providers.provider import ExecutionProvider

    class MineExecutionProvider(ExecutionProvider):
        name = "MineExecutionProvider"

    assert MineExecutionProvider({"whatever": "1"}).options == {"whatever": "1"}
