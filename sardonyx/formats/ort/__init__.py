"""The ORT format: a FlatBuffers file that holds a model as the runtime sees it, kernel type strings included."""
