"""Models for NPUs of Qualcomm, by the names of onnxruntime.tools.qnn."""
