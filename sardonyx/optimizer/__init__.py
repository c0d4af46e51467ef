"""Graphs made smaller and faster without changing what they compute: rewrite rules (local) and passes (whole graph), by levels."""
