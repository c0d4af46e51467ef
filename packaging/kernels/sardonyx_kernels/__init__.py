"""Kernels of sardonyx that were compiled ahead, one file for each level of CPUs. sardonyx finds them here; there is nothing to import."""
