"""The compiler: functions written in Python become machine code through LLVM.

`builder` writes LLVM's textual IR (with `values`, `instructions` and `storage` below it), `math` has the vector functions, `target` says what a CPU can do, `jit` alone touches LLVM, `cache`
keeps object code on disk and `pool` holds the threads. Nothing here knows what a model or an operator is.
"""
