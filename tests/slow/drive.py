"""Runs one driver program on the real onnxruntime or on sardonyx in its place, and tells which of them it got.

test_packages.py and test_quantizers.py start it in environments of their own: python drive.py onnxruntime|sardonyx PROGRAM
[ARGUMENT …]. The driver prints its results as JSON; the line after that is ours: the files of all modules that are called onnxruntime
or come from the installed package.
"""

import json
import runpy
import sys
from pathlib import Path


def main(runtime, program, *arguments):
    if runtime == "sardonyx":
        import llvmlite  # noqa: F401  # without it all would run in NumPy, and prove little

        import sardonyx

        sardonyx.install_as_onnxruntime()
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name="__main__")
    print()
    print(json.dumps(onnxruntime_modules()))


def onnxruntime_modules():
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    return {
        name: file
        for name, file in files.items()
        if file and (name.partition(".")[0] == "onnxruntime" or is_of_the_package(Path(file)))
    }


def is_of_the_package(file):
    """Whether a file is of the installed onnxruntime; optimum has a folder of that name, too."""
    return any(folder.name == "onnxruntime" and folder.parent.name == "site-packages" for folder in file.parents)


main(*sys.argv[1:])
