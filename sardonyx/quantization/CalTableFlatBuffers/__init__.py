"""The flatbuffers of TensorRT's calibration tables."""
