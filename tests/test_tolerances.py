"""Tables of tolerances stand in tests/tolerance.py: elsewhere a number is said where it is used, with its reason."""

from __future__ import annotations

import ast
from pathlib import Path

HERE = Path(__file__).parent


def assigned(path: Path) -> set[str]:
    """Names that a module gives values to."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        found.update(target.id for target in targets if isinstance(target, ast.Name))
    return found


def test_no_other_module_has_a_table_of_tolerances() -> None:
    others = [path for path in HERE.rglob("*.py") if path != HERE / "tolerance.py"]
    tables = {path.name: [name for name in assigned(path) if "TOLERANCE" in name] for path in others}
    assert not {name: names for name, names in tables.items() if names}
