"""What goes along rows: softmax, normalizations, reductions, selection."""
