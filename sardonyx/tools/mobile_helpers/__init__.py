"""Whether a model suits the processors of phones, by the ops that onnxruntime's providers for these take."""
