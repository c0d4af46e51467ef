"""What rules and passes share while one model is optimized: the model, inference, constant evaluation, options, the journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sardonyx.ir import Model
from sardonyx.ops.inference import Driver, Evaluate
from sardonyx.optimizer.rewrite import Journal


@dataclass
class Context:
    """Handed to every pass. `options` are the session's config entries by key."""

    model: Model
    evaluate: Evaluate
    options: Mapping[str, str] = field(default_factory=dict)
    journal: Journal = field(default_factory=Journal)

    def __post_init__(self) -> None:
        self.driver = Driver(self.model, self.evaluate)
        """Infers the types of new nodes: `context.driver.node(node)`."""

    def flag(self, key: str, default: bool = False) -> bool:
        """A config entry that is "1" or "0"."""
        return self.options.get(key, "1" if default else "0") == "1"
