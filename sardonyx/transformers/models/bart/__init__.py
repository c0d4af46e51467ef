"""BART as files."""
