"""Windows that slide over images, and regions of them."""
