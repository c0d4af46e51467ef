"""What `benchmarks.starting` runs in processes of its own: `starting_child.py RUNTIME MODEL FEEDS THREADS`.

Nothing is imported before the first result that a program would not import.
"""

import pickle
import sys
import time

MODULE, MODEL, FEEDS, THREADS = sys.argv[1:]
with open(FEEDS, "rb") as file:
    feeds = pickle.load(file)  # of our own parent process
before = time.process_time()
runtime = __import__(MODULE)


def first_result():
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = int(THREADS)
    session = runtime.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"])
    session.run(None, feeds)
    return session


session = first_result()
done, cpu = time.perf_counter(), time.process_time()  # a clock that all processes share; the CPU's includes the interpreter


def peak_bytes():
    """The most memory that this process had; what `resource` tells begins with the parent's."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


peak = peak_bytes()
start, start_cpu = time.perf_counter(), time.process_time()
second = first_result()
again, again_cpu = time.perf_counter() - start, time.process_time() - start_cpu

import json  # noqa: E402 - a program may do without

found = {"done": done, "cpu": cpu, "peak": peak, "again": again, "again_cpu": again_cpu}
if MODULE == "sardonyx":
    found["modules"] = sum(name.partition(".")[0] == MODULE for name in sys.modules)
    jit = sys.modules.get("sardonyx.compiler.jit")
    found["compilations"] = jit.jit().compilations if jit is not None and jit.jit.cache_info().currsize else 0
print(json.dumps(found))
