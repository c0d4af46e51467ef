"""Native products with weights of few bits: codes in blocks, each with a scale and a zero point, that are decoded in registers."""
