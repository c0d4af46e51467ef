"""Weight-only quantization by functions, as neural compression's tools have it; the algorithms are those of `weight_only`."""
