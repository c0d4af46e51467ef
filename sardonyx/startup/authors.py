"""Who has registered kernels and the like in this process, where it is not we.

Tables tell it. Sessions that remember ask, and most of them run without any table.
"""

OURS = ("sardonyx", "numpy", "builtins")
"""Whose functions our own tables have."""
_others: set[str] = set()


def note(function: object) -> None:
    """Take note of the module of a function that enters a table."""
    module = getattr(function, "__module__", None) or "builtins"
    if module.partition(".")[0] not in OURS:
        _others.add(module)


def others() -> frozenset[str]:
    """The modules of others that have registered something in this process."""
    return frozenset(_others)
