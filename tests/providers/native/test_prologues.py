"""Reducing ops in generated code count the elements of a row and nothing beyond, whatever stands before them."""

from __future__ import annotations

import numpy as np
import pytest

from sardonyx.compiler.target import X86_LEVELS
from sardonyx.compiler.types import F32
from sardonyx.providers.cpu.provider import CPUExecutionProvider
from sardonyx.providers.native.execution.compiled import CompiledProgram
from sardonyx.providers.native.program.arguments import POINTER, SIZE, Slot
from sardonyx.providers.native.program.chain import Apply, Chain, ChainCode, Load
from sardonyx.providers.native.program.kernel import KernelFunction
from sardonyx.providers.native.program.table import lowerings
from sardonyx.providers.scalars.table import name_of, newest_scalar
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.plan import make_plan
from tests.providers.native.agreement import compare, model_of, native_plan, programs
from tests.providers.native.prologues import DTYPES, FLOATS, INTEGERS, SINGLES, Build, Case, Graph, prologues_of
from tests.tolerance import NATIVE_PROLOGUES

CONTRIB, ML = "com.microsoft", "ai.onnx.ml"
COUNTS = (1, 2, 3, 7, 8, 15, 16, 17, 33)
"""Columns, around the sizes of vectors."""
DECLARED = (1, 17)
"""Those that are also declared; a declared axis of 1 is one along which operands do not move. Of the other one the first type tells."""
IMAGE = (1, 2, 3, "C")


def node(op: str, *, domain: str = "", outputs: int = 1, **attributes) -> Build:
    """A node of one input."""
    return lambda graph, x: graph.op(op, x, domain=domain, outputs=outputs, **attributes)


def reduce(op: str, axes: tuple[int, ...]) -> Build:
    return lambda graph, x: graph.op(op, x, graph.constant(np.asarray(axes)), keepdims=0)


def scan(op: str, axis: int, **attributes) -> Build:
    return lambda graph, x: graph.op(op, x, graph.constant(np.asarray(axis)), **attributes)


def beside(op: str, *shapes: tuple, domain: str = "", outputs: int = 1, **attributes) -> Build:
    """A node whose further inputs are inputs of the graph, of these shapes."""

    def build(graph: Graph, x: str):
        others = [graph.input(f"operand{number}", shape) for number, shape in enumerate(shapes)]
        return graph.op(op, x, *others, domain=domain, outputs=outputs, **attributes)

    return build


def top_k(graph: Graph, x: str):
    return graph.op("TopK", x, graph.constant(np.asarray([1])), outputs=2)


def both(op: str, domain: str = "", **attributes) -> Build:
    """A node whose operands are both behind the prologue, as rows of the same columns."""

    def build(graph: Graph, x: str):
        other = graph.op("Neg", x)
        return graph.op(op, x, other, domain=domain, **attributes)

    return build


def matrix(op: str, domain: str = "", **attributes) -> Build:
    """A product with constant weights, as many as there are columns."""

    def build(graph: Graph, x: str):
        weights = np.random.default_rng(1).standard_normal((int(graph.columns), 5))
        return graph.op(op, x, graph.constant(weights.astype(DTYPES[graph.type])), domain=domain, **attributes)

    return build


def quantized_product(graph: Graph, x: str):
    """A product of what is quantized on the way, with constant weights of 8 bits."""
    weights = np.random.default_rng(1).integers(0, 255, (int(graph.columns), 5)).astype(np.uint8)
    scale = graph.constant(np.float32(0.01))
    return graph.op("DynamicQuantizeMatMul", x, graph.constant(weights), scale, domain=CONTRIB)


def recurrent(op: str, gates: int) -> Build:
    def build(graph: Graph, x: str):
        rng = np.random.default_rng(2)
        numbers = [rng.standard_normal((1, gates * 4, size)) / 4 for size in (int(graph.columns), 4)]
        return graph.op(op, x, *(graph.constant(one.astype(DTYPES[graph.type])) for one in numbers), hidden_size=4)

    return build


def convolution(op: str, domain: str = "", shape: tuple[int, ...] = (4, 2, 1, 1), **attributes) -> Build:
    def build(graph: Graph, x: str):
        weights = np.random.default_rng(3).random(shape) + 0.25  # of one sign, so that nothing cancels
        return graph.op(op, x, graph.constant(weights.astype(DTYPES[graph.type])), domain=domain, **attributes)

    return build


def vectors_machine(op: str, kernel: str, **attributes) -> Build:
    def build(graph: Graph, x: str):
        vectors = np.random.default_rng(4).standard_normal((3, int(graph.columns))).astype(np.float32)
        gamma = [0.5, 0.25, 2.0]
        return graph.op(
            op,
            x,
            domain=ML,
            kernel_type=kernel,
            kernel_params=gamma,
            support_vectors=vectors.reshape(-1).tolist(),
            coefficients=[0.5, -1.0, 0.75],
            rho=[0.125],
            outputs=2 if op == "SVMClassifier" else 1,
            **attributes,
        )

    return build


def linear(op: str, count: int, outputs: int = 1, **attributes) -> Build:
    def build(graph: Graph, x: str):
        coefficients = np.random.default_rng(5).standard_normal(count * int(graph.columns)).astype(np.float32)
        given = {"coefficients": coefficients.tolist(), "intercepts": [0.25] * count, **attributes}
        return graph.op(op, x, domain=ML, outputs=outputs, **given)

    return build


def embedded(graph: Graph, x: str):
    """The table of words is behind the prologue; rows of it are normalized."""
    ids = graph.constant(np.asarray([[0, 2, 1]], np.int32))
    positions = graph.input("positions", (3, "C"))
    gamma, beta = graph.input("gamma", ("C",)), graph.input("beta", ("C",))
    return graph.op("EmbedLayerNormalization", ids, "", x, positions, "", gamma, beta, domain=CONTRIB, outputs=2)[0]


EXTREMES = ("ReduceMax", "ReduceMin")
REDUCTIONS = (
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMean",
    "ReduceSum",
    "ReduceSumSquare",
    "ReduceProd",
)
LAYOUTS = {"rows": (-1,), "columns": (0,)}

CASES = [
    *(
        Case(op, reduce(op, axes), types=(*FLOATS, *INTEGERS), note=note)
        for op in REDUCTIONS
        if not op.startswith("ReduceLog")
        for note, axes in LAYOUTS.items()
    ),
    *(
        Case(op, reduce(op, axes), types=FLOATS, note=note)
        for op in REDUCTIONS
        if op.startswith("ReduceLog")
        for note, axes in LAYOUTS.items()
    ),
    *(
        Case(op, reduce(op, axes), types=(*FLOATS, *INTEGERS, "int8", "uint8", "bool"), note=note)
        for op in EXTREMES
        for note, axes in LAYOUTS.items()
    ),
    *(Case(op, node(op), (2, 3, "C")) for op in ("GlobalAveragePool", "GlobalMaxPool")),
    *(Case("GlobalLpPool", node("GlobalLpPool", p=p), (2, 3, "C"), note=f"p={p}", types=SINGLES) for p in (1, 2)),
    *(
        Case(
            op, node(op, axis=axis, select_last_index=last), types=(*FLOATS, *INTEGERS, "int8", "uint8"), note=f"{axis} {last}"
        )
        for op in ("ArgMax", "ArgMin")
        for axis in (0, 1)
        for last in (0, 1)
    ),
    Case("Hardmax", node("Hardmax")),
    Case("Hardmax", node("Hardmax", axis=1), opset=12, types=SINGLES, note="flattened"),
    *(
        Case(op, scan(op, axis, exclusive=exclusive, reverse=reverse), types=(*SINGLES, *INTEGERS), opset=opset, note=note)
        for op, opset in (("CumSum", 24), ("CumProd", 26))
        for axis, exclusive, reverse, note in (
            (1, 0, 0, "rows"),
            (1, 1, 0, "exclusive"),
            (1, 0, 1, "reverse"),
            (1, 1, 1, "exclusive reverse"),
            (0, 0, 0, "columns"),
        )
    ),
    Case("TopK", top_k, types=(*FLOATS, *INTEGERS)),
    *(
        Case("CDist", both("CDist", CONTRIB, metric=metric), domain=CONTRIB, types=SINGLES, note=metric)
        for metric in ("euclidean", "sqeuclidean")
    ),
    Case("InstanceNormalization", beside("InstanceNormalization", (3,), (3,)), (2, 3, "C")),
    Case("GroupNormalization", beside("GroupNormalization", (4,), (4,), num_groups=2), (2, 4, "C")),
    *(Case(op, node(op, axis=axis), note=f"axis {axis}") for op in ("Softmax", "LogSoftmax") for axis in (0, -1)),
    *(Case(op, node(op, axis=1), (2, 3, "C"), opset=12, note="flattened", types=SINGLES) for op in ("Softmax", "LogSoftmax")),
    Case("LayerNormalization", beside("LayerNormalization", ("C",), ("C",), outputs=3)),
    Case("RMSNormalization", beside("RMSNormalization", ("C",))),
    Case("SimplifiedLayerNormalization", beside("SimplifiedLayerNormalization", ("C",)), types=SINGLES),
    Case(
        "SkipLayerNormalization",
        beside("SkipLayerNormalization", (2, 3, "C"), ("C",), domain=CONTRIB),
        (2, 3, "C"),
        domain=CONTRIB,
        types=("float32", "float16"),
    ),
    Case(
        "SkipSimplifiedLayerNormalization",
        beside("SkipSimplifiedLayerNormalization", (2, 3, "C"), ("C",), domain=CONTRIB),
        (2, 3, "C"),
        domain=CONTRIB,
        types=("float32", "float16"),
    ),
    Case("EmbedLayerNormalization", embedded, domain=CONTRIB, types=("float32", "float16")),
    *(
        Case("MeanVarianceNormalization", node("MeanVarianceNormalization", axes=axes), (2, 3, "C"), note=str(axes))
        for axes in ([2], [0, 2], [0])
    ),
    *(
        Case("LpNormalization", node("LpNormalization", axis=axis, p=p), note=f"p={p} axis {axis}")
        for p in (1, 2)
        for axis in (0, 1)
    ),
    *(
        Case(
            "Normalizer",
            node("Normalizer", norm=norm, domain=ML),
            domain=ML,
            types=("float32", "float64", "int64", "int32"),
            note=norm,
        )
        for norm in ("MAX", "L1", "L2")
    ),
    Case("LRN", node("LRN", size=3), (1, "C", 2, 2), types=SINGLES),
    Case("LRN", node("LRN", size=3), IMAGE, types=SINGLES, note="planes"),
    *(
        Case("Einsum", node("Einsum", equation=equation), types=SINGLES, note=equation)
        for equation in ("ij->i", "ij->", "ij->j")
    ),
    Case("Einsum", both("Einsum", equation="ij,ij->i"), types=SINGLES, note="rows"),
    Case("Einsum", both("Einsum", equation="ij,kj->ik"), types=SINGLES, note="matrix"),
    *(Case(op, matrix(op, domain), domain=domain, is_open=False) for op, domain in (("MatMul", ""), ("FusedMatMul", CONTRIB))),
    Case("TransposeMatMul", matrix("TransposeMatMul", CONTRIB), domain=CONTRIB, is_open=False, types=("float32",)),
    Case("MatMul", beside("MatMul", ("C", 5)), types=SINGLES, note="computed"),
    Case("MatMul", beside("MatMul", ("C",)), types=SINGLES, note="vector"),
    Case("Gemm", matrix("Gemm"), is_open=False, types=SINGLES),
    Case("FusedGemm", matrix("FusedGemm", CONTRIB, activation="Relu"), domain=CONTRIB, is_open=False, types=("float32",)),
    Case(
        "FusedMatMulActivation",
        matrix("FusedMatMulActivation", CONTRIB, activation="Relu"),
        domain=CONTRIB,
        is_open=False,
        types=("float32",),
    ),
    Case("GemmFastGelu", matrix("GemmFastGelu", CONTRIB), domain=CONTRIB, is_open=False, types=("float32",)),
    *(
        Case(op, recurrent(op, gates), (3, 2, "C"), is_open=False, types=("float32",))
        for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1))
    ),
    *(
        Case(
            "SVMRegressor",
            vectors_machine("SVMRegressor", kernel, n_supports=3),
            domain=ML,
            is_open=False,
            types=("float32",),
            note=kernel,
        )
        for kernel in ("RBF", "LINEAR", "POLY", "SIGMOID")
    ),
    Case(
        "SVMClassifier",
        vectors_machine("SVMClassifier", "RBF", vectors_per_class=[2, 1], classlabels_ints=[0, 1]),
        domain=ML,
        is_open=False,
        types=("float32",),
    ),
    Case("LinearRegressor", linear("LinearRegressor", 2, targets=2), domain=ML, is_open=False, types=("float32",)),
    *(
        Case(
            "LinearClassifier",
            linear("LinearClassifier", 3, outputs=2, classlabels_ints=[0, 1, 2], post_transform=post),
            domain=ML,
            is_open=False,
            types=("float32",),
            note=post,
        )
        for post in ("NONE", "SOFTMAX", "SOFTMAX_ZERO")
    ),
    *(
        Case(op, node(op, kernel_shape=[2, 2], pads=[1, 1, 0, 0]), IMAGE, types=SINGLES)
        for op in ("MaxPool", "AveragePool", "LpPool")
    ),
    Case("MaxPool", node("MaxPool", kernel_shape=[2, 2], pads=[1, 1, 0, 0], outputs=2), IMAGE, types=SINGLES, note="indices"),
    Case("Conv", convolution("Conv"), IMAGE, types=("float32",)),
    Case("Conv", convolution("Conv", shape=(4, 2, 3, 3), pads=[1, 1, 1, 1]), IMAGE, types=("float32",), note="padded"),
    Case("FusedConv", convolution("FusedConv", CONTRIB, activation="Relu"), IMAGE, domain=CONTRIB, types=("float32",)),
    Case("ConvTranspose", convolution("ConvTranspose", shape=(2, 3, 2, 2)), IMAGE, types=("float32",)),
    Case("Attention", beside("Attention", (1, 2, 4, 8), (1, 2, 4, 8)), (1, 2, "C", 8), types=("float32",), note="queries"),
    Case(
        "Attention",
        lambda g, x: g.op("Attention", g.input("query", (1, 2, 3, 8)), x, g.input("value", (1, 2, "C", 8))),
        (1, 2, "C", 8),
        types=("float32",),
        note="keys",
    ),
    Case("DynamicQuantizeMatMul", quantized_product, domain=CONTRIB, is_open=False, types=("float32",)),
    Case("DynamicQuantizeLinear", node("DynamicQuantizeLinear", outputs=3), types=("float32",)),
    Case("DFT", node("DFT"), (2, "C", 1), types=("float32",), is_open=False),
]

NOT_REDUCING = {
    "each result is made of one element, or of as many operands as there are inputs": """
        BatchNormalization ai.onnx.ml.Scaler ai.onnx.ml.Imputer ai.onnx.ml.LabelEncoder ai.onnx.ml.OneHotEncoder
        RotaryEmbedding com.microsoft.RotaryEmbedding AffineGrid QuantizeLinear DequantizeLinear
        com.microsoft.GatherBlockQuantized
    """,
    "elements are moved, not combined": """
        Gather GatherElements GatherND com.microsoft.GatherND Reshape Squeeze Unsqueeze Flatten Identity
        com.microsoft.ExpandDims Transpose Expand Slice Split com.microsoft.UnfoldTensor Concat Tile DepthToSpace Pad
        SpaceToDepth
        BitCast com.microsoft.Pad Trilu com.microsoft.Trilu ReverseSequence MaxUnpool ai.onnx.ml.ArrayFeatureExtractor
        ai.onnx.ml.FeatureVectorizer Compress
        SequenceConstruct SequenceEmpty SequenceInsert SequenceErase SequenceAt SequenceLength SplitToSequence ConcatFromSequence
        Optional OptionalGetElement OptionalHasElement
    """,
    "strings are read one by one": """
        Equal StringConcat StringNormalizer StringSplit RegexFullMatch TfIdfVectorizer com.microsoft.Tokenizer
        com.microsoft.MurmurHash3 ai.onnx.ml.CategoryMapper
    """,
    "nodes of the graphs inside are lowered one by one": "If Loop Scan SequenceMap",
    "operands are copied before they are combined": """
        Col2Im LinearAttention Det com.microsoft.Inverse NonZero NonMaxSuppression Unique com.microsoft.Unique
        sardonyx.LSTMStepsGrad sardonyx.GRUStepsGrad
    """,
    "the kernels of LSTM and GRU, which are here": "com.microsoft.LSTMTraining com.microsoft.GRUTraining",
    "operands are computed before they are combined, number by number": """
        com.microsoft.MatMulNBits com.microsoft.MatMulBnb4 com.microsoft.MoE com.microsoft.QMoE
    """,
    "results do not depend on the elements of an operand": """
        Range com.microsoft.Range EyeLike OneHot ConstantOfShape RandomNormal RandomNormalLike RandomUniform
        RandomUniformLike
    """,
    "updates are added one by one, at places that are checked": "ScatterElements Scatter ScatterND",
    "pixels are read by their coordinates, so that no vector reaches beyond a row": """
        Resize Upsample GridSample com.microsoft.GridSample RoiAlign MaxRoiPool com.microsoft.CropAndResize
        DeformConv
    """,
    "rows are walked through trees one by one; a vector holds 16 rows": """
        ai.onnx.ml.TreeEnsembleClassifier ai.onnx.ml.TreeEnsembleRegressor ai.onnx.ml.TreeEnsemble
    """,
    "the kernels of Attention, which is here": """
        com.microsoft.Attention com.microsoft.MultiHeadAttention com.microsoft.GroupQueryAttention
    """,
    "the kernels of DFT, which is here": "STFT",
    "the kernels of DynamicQuantizeMatMul, which is here; operands are whole numbers in groups": """
        MatMulInteger QLinearMatMul com.microsoft.MatMulIntegerToFloat com.microsoft.QGemm ConvInteger QLinearConv
        com.microsoft.QLinearConv com.microsoft.DynamicQuantizeLSTM
    """,
    "the kernels of FusedConv, which is here, on images with their channels last": "com.microsoft.NhwcFusedConv",
}


def full_name(domain: str, op: str) -> str:
    return f"{domain}.{op}" if domain else op


def test_every_lowering_is_run_behind_prologues_or_listed_with_a_reason():
    cases = {full_name(case.domain, case.op) for case in CASES}
    listed = [name for names in NOT_REDUCING.values() for name in names.split()]
    assert len(listed) == len(set(listed)) and not cases & set(listed)
    lowerings.operators()  # imports all that register some
    lowered = {full_name(entry.domain, entry.op) for entry in lowerings if not entry.composed}
    missing, unknown = lowered - cases - set(listed), (cases | set(listed)) - lowered
    assert not missing, f"{sorted(missing)}: add a Case to CASES, or the name to NOT_REDUCING with the reason"
    assert not unknown, f"{sorted(unknown)}: has no lowering; remove it from CASES or NOT_REDUCING"


@pytest.mark.parametrize(
    ("case", "type"), [pytest.param(case, type, id=f"{case} {type}") for case in CASES for type in case.types]
)
def test_lanes_beyond_the_last_column_do_not_count(case, type):
    names = list(prologues_of(type))
    if case.is_open:
        check(case, case.graph(type, None, names), COUNTS)
    declared = DECLARED if type == case.types[0] else DECLARED[:1]
    for columns in declared if case.is_open else COUNTS:
        check(case, case.graph(type, columns, names), [columns])


def check(case: Case, graph: Graph, counts) -> None:
    """Native code and NumPy agree on numbers of columns."""
    model, rng = graph.model(case.opset).SerializeToString(), np.random.default_rng(0)
    plan = native_plan(model)
    left = [step.node.op_type for step in plan.steps if not isinstance(step.call, CompiledProgram)]
    assert not left, f"left to NumPy: {left}"
    reference = make_plan(model_of(model).graph, [CPUExecutionProvider()])
    for columns in counts:
        feeds = graph.feeds(columns, rng)
        for program in programs(plan):
            assert program.run_any([feeds[value.name] for value in program.program.inputs]) is not None, (
                "NumPy had to compute it"
            )
        compare(execute(plan, feeds), execute(reference, feeds), NATIVE_PROLOGUES.get(graph.type))


def emitted(chain: Chain, read) -> str:
    """The code of a kernel that reads a masked vector of a row."""
    f = KernelFunction(X86_LEVELS["avx2"])
    *operands, remaining, target = f.words([*chain.slots, Slot("remaining", SIZE), Slot("target", POINTER)])
    row = ChainCode(f, chain, operands).row([])
    f.store(read(row, f.begin, remaining), target, 0, F32)
    return f.text("kernel")


PLAIN, STRIDED, SINGLE = (Chain(1, (Load(F32, (kind,)),), ()) for kind in ("1", "n", "0"))
EXP = Chain(1, (Load(F32, ("1",)), Apply(name_of(newest_scalar("Exp")), (0,), F32)), ())


@pytest.mark.parametrize("chain", [PLAIN, STRIDED])
def test_lanes_of_a_plain_load_are_zero_already(chain):
    counted = emitted(chain, lambda row, column, remaining: row.counted(column, 8, remaining, F32, 0))
    assert counted == emitted(chain, lambda row, column, remaining: row.lanewise(column, 8, remaining, F32))


@pytest.mark.parametrize(("chain", "neutral"), [(PLAIN, 1), (SINGLE, 0), (EXP, 0)])
def test_lanes_that_are_not_neutral_are_replaced_in_the_last_vector_alone(chain, neutral):
    last = emitted(chain, lambda row, column, remaining: row.counted(column, 8, remaining, F32, neutral))
    whole = emitted(chain, lambda row, column, remaining: row.counted(column, 8, None, F32, neutral))
    assert last.count("= select <8 x i1>") == whole.count("= select <8 x i1>") + 1
