"""What NumPy may compute: ops, or some of their types, for which there is no native code, with the reasons. `test_numpy_ops` compares."""

from __future__ import annotations

OPS = {
    "pictures are decoded by Pillow": "ImageDecoder",
    "sequences and optional values that a model takes or gives, texts in them, optional values that a run decides": """
        If Loop SequenceMap SequenceAt SequenceErase SequenceInsert SequenceLength
        ConcatFromSequence Optional OptionalGetElement OptionalHasElement ai.onnx.preview:FlexAttention
    """,
    "how much is given depends on data": """
        NonZero Unique TopK com.microsoft:Range com.microsoft:Unique
        com.microsoft:RemovePadding com.microsoft:NGramRepeatBlock
    """,
    "truth values and complex numbers are not added up": "Col2Im",
    "texts and maps": """
        TfIdfVectorizer Constant ai.onnx.ml:CastMap ai.onnx.ml:DictVectorizer ai.onnx.ml:LabelEncoder
        ai.onnx.ml:ZipMap ai.onnx.ml:FeatureVectorizer
        ai.onnx.ml:Imputer ai.onnx.ml:LinearClassifier ai.onnx.ml:SVMClassifier ai.onnx.ml:SVMRegressor ai.onnx.ml:Scaler
        com.microsoft:MurmurHash3
    """,
    "steps of training, which go through sequences of tensors or norms of several": """
        com.microsoft:AdamWOptimizer com.microsoft:SGDOptimizerV2 com.microsoft:BroadcastGradientArgs
        com.microsoft:InPlaceAccumulatorV2 com.microsoft:InplaceClipGradNorm com.microsoft:ReduceAllL2
    """,
    "a constant divisor that holds a 0 is an error, and so are factors of integers that are no integers": """
        Div Mod Gemm com.microsoft:FusedGemm
    """,
    "quantized numbers": """
        QuantizeLinear DequantizeLinear MatMulInteger QLinearMatMul com.microsoft:QuantizeLinear
        com.microsoft:GatherBlockQuantized
    """,
    "blocks of channels, which only onnxruntime's own files have": """
        com.microsoft.nchwc:AveragePool com.microsoft.nchwc:GlobalAveragePool com.microsoft.nchwc:GlobalMaxPool
        com.microsoft.nchwc:MaxPool com.microsoft.nchwc:ReorderInput com.microsoft.nchwc:ReorderOutput
        com.microsoft.nchwc:Upsample
    """,
    "complex numbers are moved, and not computed with; nor are they drawn": """
        ScatterElements ScatterND RandomNormalLike RandomUniformLike
    """,
    "complex numbers between pixels, integers between cropped ones, points that are integers, cubic sums of three axes": """
        Resize GridSample com.microsoft:GridSample
    """,
    "few points: where 0 is exact, ONNX's suite has the last bits of NumPy's inverse transform along other axes than the last": "DFT",
    "few keys of bfloat16 are rounded after every step, as the standard's cases are: there is no room for sums in another order": """
        Attention
    """,
    "images of four axes; no channels, no filters or no taps": """
        Conv ConvTranspose DeformConv com.microsoft:CausalConvWithState
    """,
    "texts among the types to be cast to": "Cast CastLike",
    "a path as long as data decides": "com.microsoft:DynamicTimeWarping",
    "caches of other types than the queries, or shared ones; blocks of scores that are left out": """
        com.microsoft:DecoderMaskedMultiHeadAttention com.microsoft:GroupQueryAttention com.microsoft:MultiHeadAttention
        com.microsoft:SparseAttention
    """,
}
"""Ops of which some forms or types, or all, are left to NumPy, by reason."""
TYPES = {"string": "texts are objects of Python"}
"""Element types that are left to NumPy wherever they may stand."""
