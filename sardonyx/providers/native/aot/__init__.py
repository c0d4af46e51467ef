"""Compiled models on disk: the native provider's programs in EPContext nodes, so that a session neither optimizes, compiles nor packs.

`writing` makes a context model of a prepared one; `contexts` decides whether the code in one may be used here, and `provider` runs it.
`container` is the file format, `storing` turns programs into plain tables and back, and `cpu` says what code needs. What a session imports
to run a context model is kept small: no LLVM, no lowerings, no optimizer.
"""
