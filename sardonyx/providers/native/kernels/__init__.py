"""Generated code by family, with the names that `ops` has: how nodes are lowered, and the kernels that they need."""
