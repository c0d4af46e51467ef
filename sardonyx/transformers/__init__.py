"""Tools for models of transformers under the names of `onnxruntime.transformers`, on top of our optimizer."""
