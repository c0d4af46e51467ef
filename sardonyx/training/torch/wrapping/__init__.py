"""ORTModule over the torch.compile backend: `sardonyx.training.ortmodule` has the names that users import."""
