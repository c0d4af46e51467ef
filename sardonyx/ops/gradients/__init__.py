"""Gradients of ops, one function each in the file of its family, and the walk from a loss back to what it depends on.

Nothing here is imported before somebody asks for a gradient.
"""
