"""Training PyTorch modules: `torch.compile(model, backend="sardonyx")`. The only folder of the package that imports torch.

dynamo and aot_autograd turn a module into graphs of ATen ops for forward, backward and inference; here each becomes a model that a
session runs.
"""
