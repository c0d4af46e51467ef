"""Pipelines that draw pictures from words."""
