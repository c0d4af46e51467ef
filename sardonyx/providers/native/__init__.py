"""Machine code through LLVM: clusters of nodes become lists of compiled kernels that one call runs.

`provider` claims and compiles; `lowering` turns nodes into steps of a `program`; `memory` gives its buffers places; `compiled` runs it.
"""
