"""Matrix products: MatMul, Gemm and their fused forms; packing and the micro-kernels."""
