"""Fourier transforms: fast ones of many signals at a time, and matrix products for lengths that have none."""
