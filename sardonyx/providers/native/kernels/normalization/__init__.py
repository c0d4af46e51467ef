"""Softmax and normalizations: over rows, channels and neighbours."""
