"""configuration.md: config keys, provider options and environment variables, from the tables of `sardonyx.settings`."""

from __future__ import annotations

from collections.abc import Iterable

from docs.pages.text import NOTE, joined, table
from sardonyx import settings
from sardonyx.settings import Setting

OPENING = """
# Configuration

Besides the typed fields of `SessionOptions` and `RunOptions` ([reference](reference.md#sessions))
there are settings by name, whose values are texts. This page lists all of them. They are declared in `sardonyx/settings.py`, one entry
each, from which the page is made.
"""
KEYS = """
## Config keys of sessions

`options.add_session_config_entry(key, value)`. A key that begins with `sardonyx.` and is not in this
table is refused, and the error names the nearest that is. Other keys that are not here are kept
without effect, for they may be onnxruntime's or a provider's.

Our own, which take no other values than these:
"""
OPTIONS = """
## Options of providers

`providers=[(name, {option: value})]`, or `provider_options=`. An option that one of these providers
does not have is refused, and the error names the nearest that it has. So is a value where all are
listed. Providers of other packages check their own.
"""


def page() -> str:
    ours = [setting for name, setting in settings.SESSION.items() if name in settings.OURS]
    theirs = [setting for name, setting in settings.SESSION.items() if name not in settings.OURS]
    return joined(
        NOTE,
        OPENING,
        KEYS,
        _table(ours),
        "onnxruntime's, with its meaning:",
        _table(theirs),
        "## Config keys of runs\n\n`run_options.add_run_config_entry(key, value)`.",
        _table(settings.RUN.values()),
        OPTIONS,
        *(part for name, options in settings.PROVIDER_OPTIONS.items() for part in (f"### {name}", _table(options.values()))),
        "## Environment variables",
        _table(settings.ENVIRONMENT.values()),
    )


def _table(declared: Iterable[Setting]) -> str:
    rows = ((f"`{setting}`", _default(setting), _values(setting), setting.meaning) for setting in sorted(declared))
    return table(("name", "default", "values", "meaning"), rows)


def _default(setting: Setting) -> str:
    return setting.default if "`" in setting.default or not setting.default else f"`{setting.default}`"


def _values(setting: Setting) -> str:
    return setting.values if isinstance(setting.values, str) else ", ".join(f"`{value}`" for value in setting.values)
