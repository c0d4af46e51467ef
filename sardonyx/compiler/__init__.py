"""The compiler: functions written in Python become machine code through LLVM.

`builder` writes LLVM's textual IR (`values`, `instructions` and `storage` are its parts), `math` and `trigonometry` have vector functions,
`target` says what a CPU can do, `jit` alone touches LLVM, `cache` keeps object code on disk and `sources` tells whether it is that of these
sources, `pack` has object code that was compiled ahead, `linking` brings it into memory, `pool` holds the threads, and `roofline` measures
what the machine can do at most. Nothing here knows what a model or an operator is.
"""

import time

IMPORTED = time.time()
"""Before any of the modules: what was edited later may not be what is in memory."""
