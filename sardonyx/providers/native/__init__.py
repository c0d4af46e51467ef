"""Machine code through LLVM: clusters of nodes become lists of compiled kernels that one call runs.

`provider` claims and compiles; `lowering` turns nodes into steps of a `program`, with the lowerings and kernels of the op families in the
folders; `chain` and `elementwise` are the fused loops; `views` says how values lie in memory; `argument_table`, `memory` and `sizes`
place a program's arguments and buffers; `compiled` runs it.
"""
