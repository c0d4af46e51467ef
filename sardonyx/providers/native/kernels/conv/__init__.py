"""Convolutions, channels last: direct, depthwise, Winograd, transposed."""
