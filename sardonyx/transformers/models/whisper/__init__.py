"""Whisper as files."""
