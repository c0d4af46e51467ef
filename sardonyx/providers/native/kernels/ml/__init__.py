"""ai.onnx.ml: tree ensembles, linear models, scalers, encoders."""
