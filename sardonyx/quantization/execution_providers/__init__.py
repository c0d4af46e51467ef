"""Helpers for models that go to other execution providers."""
