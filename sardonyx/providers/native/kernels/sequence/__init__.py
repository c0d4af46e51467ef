"""Sequences of tensors and optional values inside programs."""
