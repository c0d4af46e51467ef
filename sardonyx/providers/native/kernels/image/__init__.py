"""Pictures: resizing, sampling at points."""
