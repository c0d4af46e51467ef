"""What `benchmarks.aot` runs in processes of its own: `aot_child.py RUNTIME PATH CONFIG`. Nothing is imported that a program would not."""

import json
import sys
import time

MODULE, PATH, CONFIG = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
runtime = __import__(MODULE)
imported = time.perf_counter()


def make_session():
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    for key, value in CONFIG.items():
        options.add_session_config_entry(key, value)
    return runtime.InferenceSession(PATH, options, providers=["CPUExecutionProvider"])


session = make_session()
created = time.perf_counter()  # on a clock that all processes share

import numpy as np  # noqa: E402 - a runtime that needs it has imported it

TYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(float16)": np.float16}
TOKENS = 128


def feed(declared):
    """Ones; open sizes are one, but for the second axis of texts."""
    sizes = [size if isinstance(size, int) else TOKENS if axis == 1 else 1 for axis, size in enumerate(declared.shape)]
    return np.ones(sizes, TYPES.get(declared.type, np.float32))


feeds = {one.name: feed(one) for one in session.get_inputs()}
begin = time.perf_counter()
session.run(None, feeds)
ran = time.perf_counter()
again = []
for _ in range(5):
    del session
    start = time.perf_counter()
    session = make_session()
    again.append(time.perf_counter() - start)
print(json.dumps({"created": created, "first": created - imported, "run": ran - begin, "again": min(again)}))
