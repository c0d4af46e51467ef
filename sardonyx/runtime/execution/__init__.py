"""Runs of a prepared model: feeds, steps, results."""
