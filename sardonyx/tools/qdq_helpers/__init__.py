"""Tools for models with pairs of QuantizeLinear and DequantizeLinear."""
