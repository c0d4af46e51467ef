"""The largest elements, where they are, and running sums."""
