"""Ops as functions of single elements, from which compiling providers make loops. One file a family, as in `ops`."""
