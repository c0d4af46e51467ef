"""Runs one recorded call with `sardonyx.quantization`, and describes what came out as plain JSON data."""

from __future__ import annotations

import base64
import contextlib
import copy
import glob
import hashlib
import importlib
import io
import json
import logging
import os
import re
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper as nh

FOLDER = [""]
"""Where the float models and their calibration data are; the test fills it."""
FULL, BASE64 = 16, 1 << 15  # elements stored as a list; bytes stored as base64


def q(sub=""):
    return importlib.import_module("sardonyx.quantization" + ("." + sub if sub else ""))


def model_path(name):
    return os.path.join(FOLDER[0], "models", name + ".onnx")


def feeds(name):
    z = np.load(os.path.join(FOLDER[0], "calib", name + ".npz"))
    out = {}
    for k in z.files:
        i, n = k.split("/", 1)
        out.setdefault(int(i), {})[n] = z[k]
    return [out[i] for i in sorted(out)]


def reader(name, empty=False):
    class Reader(q().CalibrationDataReader):
        def __init__(self):
            self.data = [] if empty else feeds(name)
            self.at, self.end = 0, len(self.data)

        def __len__(self):
            return len(self.data)

        def set_range(self, start_index, end_index):
            self.at, self.end = start_index, end_index

        def get_next(self):
            if self.at >= self.end:
                return None
            self.at += 1
            return self.data[self.at - 1]

        def rewind(self):
            self.at = 0

    return Reader()


def resolve(v, case, tmp):
    if isinstance(v, dict):
        return {k: resolve(x, case, tmp) for k, x in v.items()}
    if isinstance(v, list):
        return [resolve(x, case, tmp) for x in v]
    if not (isinstance(v, str) and v.startswith("@")):
        return v
    s = v[1:]
    if s in ("reader", "empty"):
        return reader(case["model"], s == "empty")
    if s.startswith("tmp/"):
        return os.path.join(tmp, s[4:])
    if s.startswith("f32:"):
        return np.array(float(s[4:]), np.float32)
    if s.startswith("u8:"):
        return np.array(int(s[3:]), np.uint8)
    if s.startswith("exclude_op:"):
        ops = s[11:].split(",")
        return lambda model, node: node.op_type in ops
    if s.startswith("set:"):
        return set(s[4:].split(","))
    if s in ("QDQ", "QOperator"):
        return getattr(q().QuantFormat, s)
    if s in ("MinMax", "Entropy", "Percentile", "Distribution"):
        return getattr(q().CalibrationMethod, s)
    return getattr(q().QuantType, s)


# --- description of values and models ------------------------------------------------------------------------------------------
def codes(a):
    """4-bit and 8-bit floats as integers, everything else as it is."""
    a = np.asarray(a)
    n = a.dtype.name
    if n in ("int4", "int2"):
        return a.astype(np.int8)
    if n in ("uint4", "uint2"):
        return a.astype(np.uint8)
    if n.startswith("float8"):
        return a.view(np.uint8)
    return a


def arr(a):
    a = np.asarray(a)
    c = np.ascontiguousarray(codes(a)).reshape(a.shape)
    d = {"type": a.dtype.name, "shape": list(a.shape)}
    if c.dtype.kind in "OUS":
        d["values"] = [x.decode() if isinstance(x, bytes) else str(x) for x in c.ravel()]
    elif c.size <= FULL:
        d["values"] = [num(x) for x in c.ravel().tolist()]
    elif c.nbytes <= BASE64:
        d["store"] = c.dtype.name
        d["base64"] = base64.b64encode(c.tobytes()).decode()
    else:
        d["sha256"] = hashlib.sha256(c.tobytes()).hexdigest()
        d["first"] = [num(x) for x in c.ravel()[:8].tolist()]
    return d


def num(x):
    if isinstance(x, float) and (x != x or x in (float("inf"), float("-inf"))):
        return repr(x)
    return x


def unarr(d):
    """The array of a stored description, or None if only its hash is there."""
    if "base64" in d:
        return np.frombuffer(base64.b64decode(d["base64"]), np.dtype(d["store"])).reshape(d["shape"])
    if "values" in d:
        t = d["type"]
        dt = {"int4": np.int8, "uint4": np.uint8, "int2": np.int8, "uint2": np.uint8}.get(t)
        if dt is None:
            dt = np.uint8 if t.startswith("float8") else (object if t == "object" or t.startswith("str") else np.dtype(t))
        v = [float(x) if isinstance(x, str) and dt is not object else x for x in d["values"]]
        return np.array(v, dtype=dt).reshape(d["shape"])
    return None


def attr(a):
    t = onnx.AttributeProto
    if a.type == t.GRAPH:
        return {"graph": graph(a.g, {})}
    if a.type == t.TENSOR:
        return arr(nh.to_array(a.t))
    v = onnx.helper.get_attribute_value(a)
    if isinstance(v, bytes):
        return v.decode()
    if isinstance(v, (int, float, str)):
        return v
    return [x.decode() if isinstance(x, bytes) else x for x in v]


def io_of(v):
    t = v.type.tensor_type
    return [v.name, t.elem_type, [d.dim_param or d.dim_value for d in t.shape.dim]]


def graph(g, source):
    inits = {}
    for t in g.initializer:
        a = nh.to_array(t)
        d = arr(a)
        s = source.get(t.name)
        if s is not None and s.dtype == a.dtype and s.shape == a.shape and np.array_equal(s, a) and a.size > FULL:
            d = {"type": d["type"], "shape": d["shape"], "same_as_input": True}
        inits[t.name] = d
    return {
        "inputs": [io_of(v) for v in g.input],
        "outputs": [io_of(v) for v in g.output],
        "nodes": [
            [
                n.op_type,
                n.domain,
                n.name,
                list(n.input),
                list(n.output),
                {a.name: attr(a) for a in sorted(n.attribute, key=lambda a: a.name)},
            ]
            for n in g.node
        ],
        "initializers": inits,
    }


def all_graphs(g):
    yield g
    for n in g.node:
        for a in n.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                yield from all_graphs(a.g)


def describe(model, source):
    ops = Counter((n.domain + ":" if n.domain else "") + n.op_type for g in all_graphs(model.graph) for n in g.node)
    return {
        "ir_version": model.ir_version,
        "opsets": dict(sorted((o.domain, o.version) for o in model.opset_import)),
        "producer": model.producer_name,
        "metadata": dict(sorted((p.key, p.value) for p in model.metadata_props)),
        "ops": dict(sorted(ops.items())),
        "graph": graph(model.graph, source),
    }


def run_model(path_or_bytes, feed):
    ort = importlib.import_module("sardonyx")
    so = ort.SessionOptions()
    so.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    so.intra_op_num_threads = 1
    so.log_severity_level = 4
    s = ort.InferenceSession(path_or_bytes, so, providers=[("CPUExecutionProvider", {"native": "0"})])  # each model runs once
    return dict(zip([o.name for o in s.get_outputs()], s.run(None, feed)))


def atol(model, name, value):
    """Two steps (four in deep models) of the output's quantization (of an 8-bit step of its range where it is not quantized at the end)."""
    step = float(np.abs(value).max()) / 127 if value.size else 0.0
    inits = {t.name: t for t in model.graph.initializer}
    for n in model.graph.node:
        if name in n.output and n.op_type == "DequantizeLinear" and n.input[1] in inits:
            step = max(float(nh.to_array(inits[n.input[1]]).max()), step / 100)
    many = (
        sum(n.op_type in ("QuantizeLinear", "QLinearMatMul", "QLinearConv", "DynamicQuantizeLinear") for n in model.graph.node)
        > 15
    )
    return (4.02 if many else 2.02) * step  # a tie that falls the other way early moves a deep model's output by more


def nested(v):
    if isinstance(v, dict):
        return {str(k): nested(x) for k, x in v.items()}
    if isinstance(v, (list, tuple)):
        return [nested(x) for x in v]
    if isinstance(v, (set, frozenset)):
        return sorted(map(str, v))
    if isinstance(v, np.ndarray):
        return {"array": arr(v)}
    if isinstance(v, np.generic):
        return num(v.item())
    if v is None or isinstance(v, (bool, int, float, str)):
        return num(v)
    return str(v)


def tensors(td):
    return {
        k: nested(
            {a: getattr(v, a) for a in ("lowest", "highest", "avg", "std", "hist", "hist_edges", "bins") if hasattr(v, a)}
        )
        for k, v in sorted(td.items())
    }


# --- the tools -------------------------------------------------------------------------------------------------------------------
def calibrate(case, kw, tmp):
    collect = kw.pop("collect", True)
    c = q().create_calibrator(
        model_path(case["model"]),
        kw.pop("op_types_to_calibrate", None),
        augmented_model_path=os.path.join(tmp, "aug.onnx"),
        **kw,
    )
    if collect:
        c.collect_data(reader(case["model"]))
    return c.compute_data()


def utils_table():
    """compute_scale_zp, quantize_data, quantize_nparray, compute_data_quant_params on a grid of ranges and types."""
    u, T = q("quant_utils"), onnx.TensorProto
    types = {"int8": T.INT8, "uint8": T.UINT8, "int16": T.INT16, "uint16": T.UINT16, "int4": T.INT4, "uint4": T.UINT4}
    rng = np.random.default_rng(7)
    f = np.float32
    ranges = [
        (-1, 1),
        (0, 1),
        (-1, 0),
        (0, 0),
        (0.5, 2),
        (-2, -0.5),
        (-0.1, 12.7),
        (-1e-8, 1e-8),
        (-3e38, 3e38),
        (1e-30, 1e-30),
        (-1e-42, 0),
    ]
    data = {
        "normal": rng.standard_normal(24),
        "positive": rng.random(24) + 0.5,
        "zeros": np.zeros(5),
        "outlier": np.r_[rng.standard_normal(20) * 0.01, 50.0],
        "half_steps": np.arange(-127.5, 128) / 2,
        "one": np.array([0.3]),
    }
    d = {"qrange": {}, "scale_zp": {}, "data": {}, "params": {}, "nparray": {}}
    for n, t in types.items():
        for red in (False, True):
            for sym in (False, True):
                key = f"{n},reduce={red},symmetric={sym}"
                lo, hi = u.get_qmin_qmax_for_qType(t, reduce_range=red, symmetric=sym)
                d["qrange"][key] = [int(lo), int(hi)]
                for r in ranges:
                    for mr in (None, 0.5):
                        with np.errstate(all="ignore"):
                            z, s = u.compute_scale_zp(np.array(r[0], f), np.array(r[1], f), lo, hi, sym, mr)
                        d["scale_zp"][f"{key},range={r},min={mr}"] = [int(z), float(s), str(np.asarray(s).dtype)]
        for sym in (False, True):
            for k, a in data.items():
                z, s, v = u.quantize_data(a.astype(f), t, sym)[-3:]
                d["data"][f"{n},symmetric={sym},{k}"] = {"zero_point": int(z), "scale": float(s), "values": {"array": arr(v)}}
                z, s = u.compute_data_quant_params(a.astype(f), t, sym, rmin_override=None, rmax_override=f(2))
                d["params"][f"{n},symmetric={sym},{k}"] = [int(z), float(s)]
        d["nparray"][n] = {
            "array": arr(
                u.quantize_nparray(
                    t,
                    data["half_steps"].astype(f),
                    np.array(0.5, f),
                    np.array(3 if n[0] == "u" else -3, {"int4": np.int8, "uint4": np.uint8}.get(n, n)),
                )
            )
        }
    return d


def api_table():
    """Parameters of the public functions and classes, enum values, and which ops each registry knows."""
    import inspect

    d = {"signatures": {}, "enums": {}, "registries": {}}
    names = {
        "": [
            "quantize",
            "quantize_dynamic",
            "quantize_static",
            "get_qdq_config",
            "quant_pre_process",
            "create_calibrator",
            "write_calibration_table",
            "save_tensors_data",
            "load_tensors_data",
            "MinMaxCalibrater",
            "StaticQuantConfig",
            "DynamicQuantConfig",
            "QDQQuantizer",
            "CalibraterBase",
        ],
        "calibrate": ["EntropyCalibrater", "PercentileCalibrater", "DistributionCalibrater", "HistogramCalibrater"],
        "onnx_quantizer": ["ONNXQuantizer"],
        "matmul_nbits_quantizer": [
            "MatMulNBitsQuantizer",
            "DefaultWeightOnlyQuantConfig",
            "RTNWeightOnlyQuantConfig",
            "KQuantWeightOnlyQuantConfig",
            "GPTQWeightOnlyQuantConfig",
            "HQQWeightOnlyQuantConfig",
        ],
        "matmul_bnb4_quantizer": ["MatMulBnb4Quantizer"],
        "qdq_loss_debug": [
            "modify_model_output_intermediate_tensors",
            "collect_activations",
            "create_activation_matching",
            "create_weight_matching",
            "compute_activation_error",
            "compute_weight_error",
            "compute_signal_to_quantization_noice_ratio",
        ],
        "quant_utils": [
            "compute_scale_zp",
            "quantize_data",
            "quantize_nparray",
            "load_model_with_shape_infer",
            "model_has_pre_process_metadata",
            "add_pre_process_metadata",
        ],
    }
    for sub, ns in names.items():
        for n in ns:
            sig = inspect.signature(getattr(q(sub), n))
            d["signatures"][(sub + "." if sub else "") + n] = [
                [p.name, None if p.default is p.empty else getattr(p.default, "__name__", str(p.default))]
                for p in sig.parameters.values()
            ]
    for n in ("QuantType", "QuantFormat", "CalibrationMethod", "QuantizationMode"):
        d["enums"][n] = {m.name: m.value for m in getattr(q(), n)}
    for n in ("IntegerOpsRegistry", "QLinearOpsRegistry", "QDQRegistry", "CommonOpsRegistry"):
        d["registries"][n] = sorted(getattr(q("registry"), n))
    return d


def execute(case, tmp):
    """-> dict with "path" (a produced model), and/or "data"."""
    tool, name = case["tool"], case["model"]
    kw = resolve(copy.deepcopy(case["kw"]), case, tmp)
    src = os.path.join(tmp, name[5:]) if name and name.startswith("@tmp/") else name and model_path(name)
    out = os.path.join(tmp, "out.onnx")
    if kw.pop("as_proto", False):
        src = onnx.load(src)
    if tool == "quantize_dynamic":
        q().quantize_dynamic(src, out, **kw)
        return {"path": out}
    if tool == "quantize_static":
        kw.setdefault("calibration_data_reader", reader(name) if name else None)
        q().quantize_static(src, out, **kw)
        if "calibration_cache_path" in kw:
            td = q().load_tensors_data(kw["calibration_cache_path"])
            again = os.path.join(tmp, "again.onnx")
            q().quantize_static(src, again, **dict(kw, calibration_data_reader=None))
            return {"path": out, "data": {"cache": tensors(td), "same_from_cache": onnx.load(out) == onnx.load(again)}}
        return {"path": out}
    if tool == "quantize_config_dynamic":
        q().quantize(src, out, q().DynamicQuantConfig(**kw))
        return {"path": out}
    if tool == "quantize_config_static":
        q().quantize(src, out, q().StaticQuantConfig(reader(name), **kw))
        return {"path": out}
    if tool == "quantize_bad_config":
        q().quantize(src, out, {"mode": "static"})
    if tool in ("get_qdq_config", "qnn_config"):
        f = q().get_qdq_config if tool == "get_qdq_config" else q("execution_providers.qnn").get_qnn_qdq_config
        c = f(src, reader(name), **kw)
        d = {
            k: nested(getattr(c, k))
            for k in (
                "activation_type",
                "weight_type",
                "quant_format",
                "calibrate_method",
                "per_channel",
                "reduce_range",
                "use_external_data_format",
                "extra_options",
            )
        }
        d["op_types_to_quantize"] = sorted(c.op_types_to_quantize)
        d["nodes_to_exclude"] = sorted(c.nodes_to_exclude)
        q().quantize(src, out, c)
        return {"path": out, "data": d}
    if tool in ("onnx_quantizer", "qdq_quantizer"):
        t = q().QuantType
        model = q("quant_utils").load_model_with_shape_infer(Path(src))
        td = calibrate(case, {}, tmp) if kw.get("static", True) else None
        if tool == "qdq_quantizer":
            z = q().QDQQuantizer(
                model,
                False,
                False,
                t.QInt8,
                t.QUInt8,
                td,
                [],
                [],
                ["Conv", "Add", "Gemm", "MaxPool"],
                {"ActivationSymmetric": False},
            )
        else:
            reg = q("registry")
            ops = list(reg.QLinearOpsRegistry) if kw["static"] else list(reg.IntegerOpsRegistry)
            z = q("onnx_quantizer").ONNXQuantizer(
                model,
                False,
                False,
                q("registry").QuantizationMode.QLinearOps if kw["static"] else q("registry").QuantizationMode.IntegerOps,
                kw["static"],
                t.QInt8,
                t.QUInt8,
                td,
                [],
                [],
                ops,
                {"MatMulConstBOnly": True},
            )
        z.quantize_model()
        z.model.save_model_to_file(out, False)
        return {"path": out}
    if tool == "quant_utils":
        return {"data": utils_table()}
    if tool == "api":
        return {"data": api_table()}
    if tool == "quant_pre_process":
        here = os.getcwd()
        os.chdir(tmp)
        try:
            q().quant_pre_process(src, out, **kw)
        finally:
            os.chdir(here)
        files = sorted(os.path.basename(p) for p in glob.glob(os.path.join(tmp, "*")))
        return {
            "path": out,
            "data": {"files": files, "has_pre_process": q("quant_utils").model_has_pre_process_metadata(onnx.load(out))},
        }
    if tool == "matmul_nbits":
        mod = q("matmul_nbits_quantizer")
        algo, ext = kw.pop("algo", None), kw.pop("use_external", False)
        if algo:
            kw["algo_config"] = getattr(mod, algo.pop("class"))(**algo)
        for k in ("op_types_to_quantize", "quant_axes"):
            if k in kw:
                kw[k] = tuple(tuple(x) if isinstance(x, list) else x for x in kw[k])
        z = mod.MatMulNBitsQuantizer(onnx.load(src), **kw)
        z.process()
        m = z.model
        m.save_model_to_file(out, ext) if hasattr(m, "save_model_to_file") else onnx.save_model(getattr(m, "model", m), out)
        return {"path": out}
    if tool == "bnb4":
        z = q("matmul_bnb4_quantizer").MatMulBnb4Quantizer(onnx.load(src), **kw)
        z.process()
        z.model.save_model_to_file(out, False)
        return {"path": out}
    if tool == "calibrate":
        td = calibrate(case, kw, tmp)
        return {"data": {"method": str(td.calibration_method), "tensors": tensors(td)}}
    if tool == "calibration_table":
        td = calibrate(case, kw, tmp)
        d = os.path.join(tmp, "table")
        os.makedirs(d)
        q().write_calibration_table(td.data, dir=d)
        fb = q("CalTableFlatBuffers.TrtTable").TrtTable
        t = fb.GetRootAsTrtTable(Path(d, "calibration.flatbuffers").read_bytes(), 0)
        flat = {t.Dict(i).Key().decode(): float(t.Dict(i).Value()) for i in range(t.DictLength())}
        js = json.loads(Path(d, "calibration.json").read_text())
        text = [line.rsplit(" ", 1) for line in Path(d, "calibration.cache").read_text().splitlines()]
        return {
            "data": {
                "files": sorted(os.listdir(d)),
                "flatbuffers": flat,
                "json": {k: js[k] for k in sorted(js)},
                "cache": [[k, float(v)] for k, v in text],
            }
        }
    if tool == "tensors_data_round_trip":
        td = calibrate(case, kw, tmp)
        p = os.path.join(tmp, "t.json")
        q().save_tensors_data(td, p)
        js = json.loads(Path(p).read_text())
        back = q().load_tensors_data(p)
        return {"data": {"keys": sorted(js), "tensors": tensors(back), "equal": tensors(back) == tensors(td)}}
    if tool == "loss_debug":
        dbg = q("qdq_loss_debug")
        q().quantize_static(src, out, reader(name), **kw)
        fa, qa = os.path.join(tmp, "fa.onnx"), os.path.join(tmp, "qa.onnx")
        dbg.modify_model_output_intermediate_tensors(src, fa)
        dbg.modify_model_output_intermediate_tensors(out, qa)
        facts = dbg.collect_activations(fa, reader(name))
        qacts = dbg.collect_activations(qa, reader(name))
        match = dbg.create_activation_matching(qacts, facts)
        wm = dbg.create_weight_matching(src, out)
        one = np.arange(6, dtype=np.float32)
        return {
            "data": {
                "float_activations": {k: [list(x.shape) for x in v] for k, v in sorted(facts.items())},
                "qdq_activations": {k: [list(x.shape) for x in v] for k, v in sorted(qacts.items())},
                "matching": {k: sorted(v) for k, v in sorted(match.items())},
                "activation_error": nested(
                    dict(sorted(dbg.compute_activation_error({k: v for k, v in match.items() if "float" in v}).items()))
                ),
                "weight_error": nested(dict(sorted(dbg.compute_weight_error(wm).items()))),
                "weights": {
                    k: {
                        "float": nested(v["float"].ravel()[:8]),
                        "dequantized": nested(v["dequantized"].ravel()[:8]),
                        "shape": list(v["dequantized"].shape),
                    }
                    for k, v in sorted(wm.items())
                },
                "snr": [
                    dbg.compute_signal_to_quantization_noice_ratio(one, one * np.float32(1.01)),
                    dbg.compute_signal_to_quantization_noice_ratio([one, one], [one, one]),
                ],
            }
        }
    if tool == "augment_debug":
        q("qdq_loss_debug").modify_model_output_intermediate_tensors(src, out, **kw)
        m = onnx.load(out)
        r = run_model(out, feeds(name)[-1])
        return {
            "data": {
                "outputs": sorted(o.name for o in m.graph.output),
                "ops": dict(sorted(Counter(n.op_type for n in m.graph.node).items())),
                "values": {k: nested(v.ravel()[:8]) for k, v in sorted(r.items())},
            }
        }
    if tool == "enum":
        getattr(q(), kw["cls"]).from_string(kw["value"])
    if tool == "load_tensors":
        q().load_tensors_data(os.path.join(tmp, "none.json"))
    if tool == "tensor_data":
        q().TensorData(**{kw["key"]: np.float32(1)})
    if tool == "snr":
        q("qdq_loss_debug").compute_signal_to_quantization_noice_ratio([np.ones(2)], [np.ones(2), np.ones(2)])
    if tool == "abstract_reader":
        q().CalibrationDataReader()
    raise AssertionError("no such tool: " + tool)


@contextlib.contextmanager
def quiet():
    old = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
    logging.disable(old)


def clean_text(s, tmp):
    s = s.replace(tmp, "TMP")
    s = re.sub(r"/[^\s'\"]*ort\.quant\.[^/\s'\"]*", "TMP", s)
    s = re.sub(r"frozenset\(\{(.*?)\}\)", lambda k: "frozenset({" + ", ".join(sorted(k[1].split(", "))) + "})", s)
    return re.sub(r"0x[0-9a-f]{6,}", "0x", s)


def record(case):
    """What the case gives with the present module; exceptions are passed on."""
    with tempfile.TemporaryDirectory(prefix="qfix.") as tmp, quiet():
        got = execute(case, tmp)
        rec = {"name": case["name"], "tool": case["tool"], "model": case["model"], "call": case["kw"]}
        if "data" in got:
            rec["data"] = got["data"]
        if "path" in got:
            raw = onnx.load(got["path"], load_external_data=False)
            m = onnx.load(got["path"])
            src = onnx.load(model_path(case["model"]))
            source = {t.name: nh.to_array(t) for t in src.graph.initializer}
            rec["model_out"] = describe(m, source)
            rec["external"] = sorted(t.name for t in raw.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL)
            try:
                outs = run_model(got["path"], feeds(case["model"])[-1])
                rec["outputs"] = {k: dict(arr(v), atol=atol(m, k, v) if v.dtype.kind == "f" else 0) for k, v in outs.items()}
            except Exception as e:  # some produced models cannot be run without optimizations; that too is a fact
                rec["outputs_error"] = type(e).__name__ + ": " + clean_text(str(e), tmp)[:300]
        return rec


def failure(case):
    with tempfile.TemporaryDirectory(prefix="qfix.") as tmp, quiet():
        try:
            execute(case, tmp)
        except AssertionError as e:
            if str(e).startswith("no such tool"):
                raise
            err = e
        except Exception as e:
            err = e
        else:
            return {
                "name": case["name"],
                "tool": case["tool"],
                "model": case["model"],
                "call": case["kw"],
                "exception": None,
                "text": "",
            }
        return {
            "name": case["name"],
            "tool": case["tool"],
            "model": case["model"],
            "call": case["kw"],
            "exception": type(err).__name__,
            "bases": [c.__name__ for c in type(err).__mro__[1:-2]],
            "text": clean_text(str(err), tmp),
        }
