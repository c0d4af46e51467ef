"""Llama and its kind as files."""
