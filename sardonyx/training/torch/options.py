"""What `torch.compile(model, backend="sardonyx", options={…})` takes."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from sardonyx.errors import InvalidArgument
from sardonyx.startup.records import dataclass
from sardonyx.training.recompute import read_config

CHOICES = {"fallback": ("warn", "error"), "partition": ("min_cut", "default")}
LARGEST_SEVERITY = 4


@dataclass(frozen=True)
class Options:
    """All options, with what they are if nobody says anything."""

    threads: int = 0
    """How many threads a run may have; 0: as many as torch has when it compiles."""
    fallback: str = "warn"
    """What is done about an op that is not supported: "warn" lets torch compute it and says so once, "error" refuses."""
    partition: str = "min_cut"
    """What is kept for backward: "min_cut" keeps little and computes cheap ops again, "default" keeps what autograd would."""
    memory_budget: float = 0.5
    """Of what "min_cut" would keep for backward the share that is kept; the rest is computed again, what is cheap first. Half of it is
    what elementwise ops, normalizations and softmax give, which hardly take time."""
    recompute: str = ""
    """What backward computes again of what autograd would keep, as texts of onnxruntime's memory optimizer: "Gelu+:1:-1", with commas
    between several, or a JSON file of them. It takes the place of `partition` and `memory_budget`."""
    log_severity_level: int = 2
    """As in SessionOptions."""
    save_models: str = ""
    """Each graph is written as a model under this path, with `_forward_0.onnx` and the like behind it; nothing is if it is empty."""

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Options:
        """Refuses names and values that it does not know."""
        known = list(cls.__annotations__)
        for name, value in given.items():
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f" Did you mean {near[0]!r}?" if near else f" There are {', '.join(known)}."
                raise InvalidArgument(f"backend 'sardonyx' has no option {name!r}.{hint}")
            _check(name, value)
        return cls(**given)


def _check(name: str, value: Any) -> None:
    if name in CHOICES:
        if value not in CHOICES[name]:
            raise InvalidArgument(f"option {name!r} must be one of {', '.join(CHOICES[name])}, it is {value!r}")
    elif name == "memory_budget":
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise InvalidArgument(f"option {name!r} must be a number from 0 to 1, it is {value!r}")
    elif name == "recompute":
        if not isinstance(value, str):
            raise InvalidArgument(f"option {name!r} must be a text such as 'Gelu+:1:-1', it is {value!r}")
        read_config(value)
    elif name == "save_models":
        if not isinstance(value, str):
            raise InvalidArgument(f"option {name!r} must be the beginning of a path, it is {value!r}")
    elif type(value) is not int or value < 0:
        raise InvalidArgument(f"option {name!r} must be a whole number that is not negative, it is {value!r}")
    elif name == "log_severity_level" and value > LARGEST_SEVERITY:
        raise InvalidArgument(f"option {name!r} must be at most {LARGEST_SEVERITY}, it is {value}")
