"""Windows over pictures: pooling, resizing and their like."""
