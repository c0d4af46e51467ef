"""Native mixtures of experts: tokens are sorted by the experts that they choose, so that each expert's rows are one product."""
