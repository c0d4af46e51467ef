"""Compares what a recorded call gives with what onnxruntime 1.31.1 gave.

Hard: op counts, structure without names, inputs, outputs, opsets, metadata, scales, zero points, weights, results of the produced model,
exception types. Soft: names of nodes and tensors, the order of nodes, exception texts.
"""

from __future__ import annotations

import hashlib
import json
import os
import traceback

import numpy as np
import onnx

from tests.quantization.recorded import engine

OLD = {}  # names and values of the source model's initializers, by model


def source_names(model):
    if model not in OLD:
        OLD[model] = {t.name for t in onnx.load(engine.model_path(model), load_external_data=False).graph.initializer}
    return OLD[model]


# --- structure, without names ------------------------------------------------------------------------------------------------------
def sha(x):
    return hashlib.sha1(json.dumps(x, sort_keys=True).encode()).hexdigest()[:16]


def plain(v):
    if isinstance(v, float):
        return float(f"{v:.6g}")
    if isinstance(v, list):
        return [plain(x) for x in v]
    return v


def shape_of(g, outer=None):
    """-> sorted list of (hash, op): a node's hash comes from its op, attributes and where its inputs come from."""
    env = dict(outer or {})
    for n, t, s in g["inputs"]:
        env[n] = sha(["input", n, t, s])
    for n, d in g["initializers"].items():
        env[n] = sha(["initializer", d["type"], d["shape"]])
    env[""] = ""
    hashes, todo = [], list(g["nodes"])
    while todo:
        rest = []
        for node in todo:
            op, dom, _, ins, outs, attrs = node
            if any(i not in env for i in ins) or any(not ready(a, env) for a in attrs.values()):
                rest.append(node)
                continue
            at = {
                k: (shape_of(v["graph"], env) if isinstance(v, dict) and "graph" in v else plain(v)) for k, v in attrs.items()
            }
            hh = sha([op, dom, at, [env[i] for i in ins], len(outs)])
            hashes.append((hh, op))
            for k, o in enumerate(outs):
                env[o] = sha([hh, k])
        if len(rest) == len(todo):
            return sorted(hashes) + [("unresolved", n[0]) for n in rest]
        todo = rest
    return sorted(hashes) + [(sha(env.get(n)), "=> " + n if outer is None else "=>") for n, _, _ in g["outputs"]]


def ready(a, env):
    if not (isinstance(a, dict) and "graph" in a):
        return True
    g = a["graph"]
    own = {n for n, _, _ in g["inputs"]} | set(g["initializers"]) | {o for n in g["nodes"] for o in n[4]} | {""}
    return all(i in env or i in own for n in g["nodes"] for i in n[3])


def graphs(g, path=""):
    yield path, g
    for k, n in enumerate(g["nodes"]):
        for a, v in n[5].items():
            if isinstance(v, dict) and "graph" in v:
                yield from graphs(v["graph"], f"{path}/{n[2] or k}.{a}")


# --- values --------------------------------------------------------------------------------------------------------------------------
def unpack(a, bits):
    a = a.astype(np.uint8).ravel()
    return np.stack([(a >> s) & ((1 << bits) - 1) for s in range(0, 8, bits)], -1).ravel().astype(int)


def same_values(e, g, rtol, bits=8):
    """None if equal enough, else a sentence. Floats within rtol (or 1 ulp), integer codes within one step and nearly all equal."""
    if (e["type"], e["shape"]) != (g["type"], g["shape"]):
        return f"type and shape {g['type']}{g['shape']}, expected {e['type']}{e['shape']}"
    if e.get("same_as_input") or g.get("same_as_input"):
        return None if e.get("same_as_input") == g.get("same_as_input") else "differs from the source model's values"
    a, b = engine.unarr(e), engine.unarr(g)
    if a is None or b is None:
        return None if e.get("sha256") == g.get("sha256") else "another hash"
    if a.dtype == object:
        return None if list(a.ravel()) == list(b.ravel()) else "other strings"
    if a.size == 0 or np.array_equal(a, b):
        return None
    if a.dtype.kind == "f":
        x, y = a.astype(np.float64), b.astype(np.float64)
        tol = np.maximum(np.spacing(np.abs(a)).astype(np.float64) * 1.01, rtol * np.abs(x))
        bad = ~((np.abs(x - y) <= tol) | (np.isnan(x) & np.isnan(y)))
        most = float(np.nanmax(np.abs(x - y)))
        shown = f"expected {x[bad].ravel()[:3]}, got {y[bad].ravel()[:3]}"
        return f"{int(bad.sum())} of {a.size} differ, most {most:.3g} ({shown})" if bad.any() else None
    if a.dtype.kind not in "iu" or a.dtype == np.int64:
        return f"{int((a != b).sum())} of {a.size} differ"
    if a.dtype == np.int32:  # bias: follows the scales
        d = np.abs(a.astype(np.int64) - b.astype(np.int64))
        return (
            None if (d <= np.maximum(1, 5e-5 * np.abs(a.astype(np.float64)))).all() else f"bias differs by up to {int(d.max())}"
        )
    x, y = (unpack(a, bits), unpack(b, bits)) if bits < 8 else (a.astype(int), b.astype(int))
    d = np.abs(x - y)
    if d.max() > (1 if a.dtype.itemsize == 1 else 2) or (a.size > 8 and (d > 0).mean() > 0.05):
        return f"{int((d > 0).sum())} of {d.size} codes differ, most {int(d.max())}"
    return None


def bits_of(g):
    out = {}
    for op, _, _, ins, _, attrs in g["nodes"]:
        if op in ("MatMulNBits", "GatherBlockQuantized", "MatMulBnb4"):
            for i in ins[1:]:
                out[i] = attrs.get("bits", 4)
    return out


def compare_initializers(rec, eg, gg, hard, soft):
    e, g = eg["initializers"], gg["initializers"]
    calibrated = rec["tool"] not in ("quantize_dynamic", "quantize_config_dynamic", "matmul_nbits", "bnb4", "quant_pre_process")
    old = source_names(rec["model"])
    bits = bits_of(eg)

    def rtol(n):
        if not calibrated:
            return 0.0
        base = n[: -len("_scale")] if n.endswith("_scale") else None
        pure = base in old and e.get(base + "_quantized", {}).get("type", "int32") != "int32" and "bigbias" not in rec["name"]
        return 0.0 if pure else 2e-5

    left = {n: d for n, d in g.items() if n not in e}
    for n, d in e.items():
        if n in g:
            why = same_values(d, g[n], rtol(n), bits.get(n, 8))
            if why:
                hard.append(f"initializer {n}: {why}")
            continue
        soft.append(f"no initializer named {n}")
        for m, x in left.items():
            if same_values(d, x, rtol(n), bits.get(n, 8)) is None:
                del left[m]
                break
        else:
            hard.append(f"initializer {n} {d['type']}{d['shape']}: none like it under another name")
    for m in left:
        hard.append(f"initializer {m} is not expected")


def compare_models(rec, e, g, hard, soft):
    for k in ("ops", "opsets", "ir_version", "metadata"):
        if e[k] != g[k]:
            hard.append(f"{k}: {g[k]}, expected {e[k]}")
    if e["producer"] != g["producer"]:
        soft.append(f"producer {g['producer']!r}, expected {e['producer']!r}")
    for k in ("inputs", "outputs"):
        if e["graph"][k] != g["graph"][k]:
            hard.append(f"graph {k}: {g['graph'][k]}, expected {e['graph'][k]}")
    if rec["tool"] == "quant_pre_process" and not rec["call"].get("skip_optimization"):
        return  # the optimizer's own names and constants are not part of the contract: op counts and results are
    if shape_of(e["graph"]) != shape_of(g["graph"]):
        a, b = shape_of(e["graph"]), shape_of(g["graph"])
        hard.append(
            "structure differs: not as expected "
            + str(sorted({o for h, o in b if (h, o) not in a}))
            + ", missing "
            + str(sorted({o for h, o in a if (h, o) not in b}))
        )
    eg, gg = dict(graphs(e["graph"])), dict(graphs(g["graph"]))
    for p in eg:
        if p not in gg:
            soft.append("no subgraph " + p)
            continue
        compare_initializers(rec, eg[p], gg[p], hard, soft)
        x, y = [[n[:5] for n in q["nodes"]] for q in (eg[p], gg[p])]
        if x != y:
            a, b = {json.dumps(n) for n in x}, {json.dumps(n) for n in y}
            soft.append(
                "nodes in another order"
                if a == b
                else f"names of {len(a - b)} nodes differ: {sorted(a - b)[:1]} got {sorted(b - a)[:1]}"
            )


def compare_outputs(rec, e, g, hard):
    for n, d in e.items():
        if n not in g:
            hard.append("no output " + n)
            continue
        a, b = engine.unarr(d), engine.unarr(g[n])
        if d["type"] != g[n]["type"] or d["shape"] != g[n]["shape"]:
            hard.append(f"output {n}: {g[n]['type']}{g[n]['shape']}, expected {d['type']}{d['shape']}")
        elif a.dtype.kind == "f":
            tol = d["atol"] if rec["tool"] != "quant_pre_process" else 1e-4 * float(np.abs(a).max())
            diff = np.abs(a.astype(np.float64) - b)
            if not (diff <= tol + 1e-4 * np.abs(a)).all():
                hard.append(f"output {n}: differs by {float(np.nanmax(diff)):.4g}, allowed {tol:.4g}")
        elif (a != b).mean() > 0.1:
            hard.append(f"output {n}: {int((a != b).sum())} of {a.size} differ")


def compare_data(e, g, path, hard):
    if isinstance(e, dict) and set(e) == {"array"}:
        e, g = e["array"], (g or {}).get("array") if isinstance(g, dict) else None
        if g is None:
            hard.append(f"{path}: no array")
            return
        if path.endswith(".hist") and e["shape"] == g["shape"] and engine.unarr(e) is not None and engine.unarr(g) is not None:
            a, b = engine.unarr(e).astype(float), engine.unarr(g).astype(float)
            why = (
                None if np.abs(a - b).sum() <= max(2, 0.02 * np.abs(a).sum()) else f"histogram differs by {np.abs(a - b).sum()}"
            )
        else:
            why = near(e, g, path)
        if why:
            hard.append(f"{path}: {why}")
    elif isinstance(e, dict):
        if not isinstance(g, dict) or set(e) != set(g):
            hard.append(f"{path}: keys {sorted(g) if isinstance(g, dict) else g}, expected {sorted(e)}"[:400])
            return
        for k in e:
            compare_data(e[k], g[k], f"{path}.{k}", hard)
    elif isinstance(e, list):
        if not isinstance(g, list) or len(e) != len(g):
            hard.append(f"{path}: {str(g)[:150]}, expected {str(e)[:150]}")
            return
        for k, (x, y) in enumerate(zip(e, g)):
            compare_data(x, y, f"{path}[{k}]", hard)
    elif isinstance(e, float) or (isinstance(g, float) and isinstance(e, (int, float)) and not isinstance(e, bool)):
        if "activation_error" in path or "weight_error" in path or ".snr" in path:  # decibels
            ok = isinstance(g, (int, float)) and (abs(e - g) <= 0.2 or min(e, g) > 100)
        else:
            ok = isinstance(g, (int, float)) and abs(e - g) <= 2e-5 * abs(e) + 2e-6
        if not ok:
            hard.append(f"{path}: {g}, expected {e}")
    elif e != g:
        hard.append(f"{path}: {str(g)[:150]}, expected {str(e)[:150]}")


def near(e, g, path):
    if (e["type"], e["shape"]) != (g["type"], g["shape"]):
        return f"type and shape {g['type']}{g['shape']}, expected {e['type']}{e['shape']}"
    a, b = engine.unarr(e), engine.unarr(g)
    if a is None or b is None:
        a, b = np.array(e["first"], dtype=float), np.array(g["first"], dtype=float)
    if a.dtype.kind != "f":
        return None if np.array_equal(a, b) else "differs"
    top = float(np.abs(a).max()) if a.size else 0.0
    d = np.abs(a.astype(np.float64) - b)
    return (
        None
        if (d <= 2e-5 * np.abs(a) + 2e-6 * max(1.0, top)).all()
        else f"differs by up to {float(d.max()):.4g}: expected {a.ravel()[:4]}, got {b.ravel()[:4]}"
    )


def check(rec):
    hard, soft = [], []
    case = {"name": rec["name"], "tool": rec["tool"], "model": rec["model"], "kw": rec["call"]}
    if "exception" in rec:
        got = engine.failure(case)
        # the package itself missing is never a lenient matter
        where = soft if rec.get("lenient") and got["exception"] not in ("ModuleNotFoundError", "ImportError") else hard
        if got["exception"] is None:
            where.append(f"no exception, expected {rec['exception']}: {rec['text']}")
        elif got["exception"] != rec["exception"] and rec["exception"] not in got["bases"]:
            where.append(f"{got['exception']}: {got['text'][:200]}; expected {rec['exception']}: {rec['text'][:200]}")
        elif got["text"] != rec["text"]:
            soft.append(f"text {got['text'][:200]!r}, expected {rec['text'][:200]!r}")
        return hard, soft
    try:
        got = json.loads(json.dumps(engine.record(case)))
    except Exception as e:
        at = traceback.extract_tb(e.__traceback__)[-1]
        return [f"{type(e).__name__}: {str(e)[:300]} ({os.path.basename(at.filename)}:{at.lineno})"], soft
    if "data" in rec:
        compare_data(rec["data"], got.get("data"), "data", hard)
    if "model_out" in rec:
        compare_models(rec, rec["model_out"], got["model_out"], hard, soft)
        if bool(rec["external"]) != bool(got["external"]):
            hard.append(f"external data: {got['external']}, expected {rec['external']}")
        elif rec["external"] != got["external"]:
            soft.append("other tensors are external")
        if "outputs" in rec:
            if "outputs" in got:
                compare_outputs(rec, rec["outputs"], got["outputs"], hard)
            else:
                hard.append("the produced model does not run: " + got["outputs_error"])
    return hard, soft
