"""The reference has something to say of every public name: each has a docstring, and each member of a class."""

from __future__ import annotations

import inspect

import pytest

import sardonyx
from docs.pages.reference import GROUPS, document, own_members

NAMES = [name for name in sardonyx.__all__ if not name.startswith("_")]


@pytest.mark.parametrize("name", NAMES)
def test_public_names_are_documented(name: str) -> None:
    value = getattr(sardonyx, name)
    assert document(value) and (not inspect.isclass(value) or value.__doc__), f"{name} has no docstring"
    if inspect.isclass(value):
        for member, _ in own_members(value):
            assert document(getattr(value, member)), f"{name}.{member} has no docstring"


def test_groups_name_what_is_there() -> None:
    assert {name for names in GROUPS.values() for name in names} <= set(NAMES)
