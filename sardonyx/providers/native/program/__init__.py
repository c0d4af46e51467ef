"""What a program is: steps of kernels over buffers, chains of scalar operations, views, sizes, and how nodes are lowered to them."""
