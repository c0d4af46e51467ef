"""A family of ops has one name in all folders: whoever knows its file in `ops/` finds its kernels, its machine code and its tests."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OPS = ROOT / "sardonyx" / "ops"
FOLDERS = {
    "sardonyx/providers/cpu": "*.py",
    "sardonyx/providers/native/kernels": "*",
    "sardonyx/providers/scalars": "*.py",
    "tests/ops": "test_*.py",
}
"""Where families appear again, and what of the folder bears their names; so do the inner folders of other domains."""
INNER = ("contrib", "ml")

PARTS_OF_FAMILIES = {
    "activation": "of elementwise",
    "broadcasting": "of elementwise: old opsets",
    "cast": "of elementwise",
    "conv_integer": "of conv",
    "deform_conv": "of conv",
    "error_function": "of elementwise: erf in NumPy",
    "forest": "of ml/models: the trees of an ensemble",
    "key_value_cache": "of contrib/attention",
    "linear": "of ml/models",
    "linear_attention": "of contrib/linear_attention: the standard's own op",
    "logical": "of elementwise",
    "moe": "of contrib/moe: mixtures of experts",
    "many_texts": "of text: ops on many texts at once",
    "ngrams": "of text: the n-grams of many texts",
    "re2": "of text: patterns",
    "recurrent_gradients": "of contrib/gradients",
    "regex_lockstep": "of text: patterns on many texts at once",
    "regex_machine": "of text: patterns",
    "regex_sets": "of text: patterns",
    "regex_syntax": "of text: patterns",
    "resize": "of image",
    "roi": "of pool",
    "sampling": "of image",
    "scores": "of ml/models: what classifiers do with their scores",
    "sparse_attention": "of contrib/attention",
    "svm": "of ml/models",
    "trees": "of ml/models",
    "weight_only": "of contrib/linalg: products with weights of few bits",
}
"""Files that hold a part of a family, which is large in their folder and small in `ops/`."""
ABOUT_ALL = {
    "prepared": "what kernels keep of constants",
    "provider": "the provider itself",
    "arithmetic_of_sizes": "sizes that are computed from shapes",
    "axes": "every op that has axes",
    "broadcast_sizes": "sizes that broadcast together",
    "empty_sizes": "operands of all ops",
    "extreme_integers": "operands of all ops",
    "missing_attributes": "attributes of all ops",
    "open_refusals": "operands of all ops",
    "other_ranks": "operands of all ops",
    "operand_shapes": "operands of all ops",
    "signatures": "signatures of all ops",
    "slice_bounds": "Slice, whose bounds have a file of cases",
}
"""Files that are not about a family."""


def families(folder: Path) -> set[str]:
    return {path.stem for path in folder.iterdir()} - {"__init__", "__pycache__"}


def names() -> list[tuple[str, str, str]]:
    """(folder, inner folder or "", name) of everything that should bear the name of a family."""
    return [
        (folder, inner, path.stem.removeprefix("test_"))
        for folder, pattern in FOLDERS.items()
        for inner in ("", *INNER)
        for path in sorted((ROOT / folder / inner).glob(pattern))
        if not path.stem.startswith("__") and (path.suffix == ".py" or path.is_dir()) and not (inner and "native" in folder)
    ]


@pytest.mark.parametrize(("folder", "inner", "name"), names())
def test_files_bear_the_names_of_families(folder: str, inner: str, name: str) -> None:
    known = families(OPS / inner) | PARTS_OF_FAMILIES.keys() | ABOUT_ALL.keys()
    assert name in known, (
        f"{folder}/{inner}: ops/{inner} has no family {name!r}; name the file as its ops', or add it here with a reason"
    )


def test_every_exception_is_needed() -> None:
    needed = {name for _, inner, name in names() if name not in families(OPS / inner)}
    assert PARTS_OF_FAMILIES.keys() | ABOUT_ALL.keys() <= needed, "these have families of their names by now, or are gone"
