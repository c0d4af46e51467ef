"""Sums, products and extremes along axes, and the passes over rows that other families share."""
