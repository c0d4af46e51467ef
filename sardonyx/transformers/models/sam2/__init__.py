"""SAM 2: shapes, names and comparisons of its parts. `optimizer` fuses them by the type of model "sam2"."""
