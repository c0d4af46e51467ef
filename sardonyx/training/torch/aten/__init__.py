"""What each ATen op is in ONNX's ops and those of com.microsoft: one function per op, by families. `table.py` registers them."""
