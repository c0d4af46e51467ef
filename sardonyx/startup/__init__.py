"""What stands here for one reason: a process that opens a small model shall be ready soon.

Each module takes the place of something simpler that took too long, and says so. Nothing here knows models or ops, and nothing but the
standard library is imported.

- `families`: kernels, scalar functions and lowerings stand in some two hundred modules, of which a model needs a few. The generated table
  `modules.txt` says which modules have something for which op; the others are not imported.
- `records`: `dataclasses` compiles up to six functions for each class when its module is imported. Records share their methods and compile
  `__init__` when a class is first called.
- `parameters`: tables look at the parameters of each function that they are given. `inspect.signature` makes some twenty objects for that.
- `later`: what a session leaves for later ones is written after its first results.
- `garbage`: nearly all that is made while modules are imported and a model is prepared stays, so it is not looked at over and over.
- `hashing`: `hashlib` loads OpenSSL, which takes longer than all that a session has to hash.

Three more serve the same end and stand with their subjects: names of the package that are imported when they are asked for
(`sardonyx/__init__.py`), signatures of ops as text (`ops/standard.py`), and object code that is linked without LLVM
(`compiler/linking.py`). `tests/startup/test_budgets.py` counts what start-up loads, and `DOORS` in `tests/test_layers.py` lists the
modules that wait for somebody to need them.
"""
