"""Native kernels of quantized numbers: ranges, products and convolutions of 8-bit integers."""
