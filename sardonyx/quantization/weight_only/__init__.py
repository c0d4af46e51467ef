"""Weights of 2, 4 and 8 bits in blocks: the numbers (blocks, rounding, k-quant, HQQ, GPTQ) and the nodes that hold them.

`matmul_nbits_quantizer` and `matmul_bnb4_quantizer` are the doors.
"""
