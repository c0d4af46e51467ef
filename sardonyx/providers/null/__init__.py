"""A provider that claims everything and computes nothing, for tests of what stands around providers."""

from sardonyx.providers.null.provider import NullExecutionProvider

__all__ = ["NullExecutionProvider"]
