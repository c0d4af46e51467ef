"""Attention with an online softmax, and rotary embeddings."""
