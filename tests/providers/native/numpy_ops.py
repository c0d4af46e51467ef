"""What NumPy may compute: ops, or some of their types, for which there is no native code, with the reasons. `test_numpy_ops` compares."""

from __future__ import annotations

OPS = {
    "pictures are decoded by Pillow": "ImageDecoder",
    "sequences and optional values that a model takes or gives, texts in them, optional values that a run decides": """
        If Loop Scan SequenceMap SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength
        SplitToSequence ConcatFromSequence Optional OptionalGetElement OptionalHasElement ai.onnx.preview:FlexAttention
    """,
    "how much is given depends on data": """
        NonZero Unique Compress NonMaxSuppression TopK Range com.microsoft:Range com.microsoft:Unique
        com.microsoft:RemovePadding com.microsoft:NGramRepeatBlock
    """,
    "the size of the result is a number among the data, or the edges of bands must be NumPy's to the last bit": """
        HannWindow HammingWindow BlackmanWindow MelWeightMatrix CenterCropPad Col2Im
    """,
    "texts and maps": """
        StringNormalizer StringSplit TfIdfVectorizer com.microsoft:Tokenizer Constant
        ai.onnx.ml:CastMap ai.onnx.ml:DictVectorizer ai.onnx.ml:LabelEncoder
        ai.onnx.ml:OneHotEncoder ai.onnx.ml:ZipMap ai.onnx.ml:ArrayFeatureExtractor ai.onnx.ml:FeatureVectorizer
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
    "texts among the types to be cast to": "CastLike",
    "the op that would scatter them does not take float8 and 4-bit types": "TensorScatter",
    "quantized numbers": """
        QuantizeLinear DequantizeLinear DynamicQuantizeLinear MatMulInteger ConvInteger QLinearConv QLinearMatMul
        com.microsoft:QuantizeLinear com.microsoft:DequantizeLinear com.microsoft:QLinearConv com.microsoft:QLinearAdd
        com.microsoft:QLinearMul com.microsoft:QLinearAveragePool com.microsoft:QLinearGlobalAveragePool
        com.microsoft:QLinearConcat com.microsoft:QLinearLeakyRelu com.microsoft:QLinearSigmoid com.microsoft:QLinearSoftmax
        com.microsoft:QLinearReduceMean com.microsoft:QLinearWhere com.microsoft:QGemm com.microsoft:QAttention
        com.microsoft:QMoE
        com.microsoft:MatMulIntegerToFloat com.microsoft:DynamicQuantizeMatMul
        com.microsoft:MatMulNBits
        com.microsoft:GatherBlockQuantized com.microsoft:NhwcMaxPool
    """,
    "blocks of channels, which only onnxruntime's own files have": """
        com.microsoft.nchwc:AveragePool com.microsoft.nchwc:GlobalAveragePool com.microsoft.nchwc:GlobalMaxPool
        com.microsoft.nchwc:MaxPool com.microsoft.nchwc:ReorderInput com.microsoft.nchwc:ReorderOutput
        com.microsoft.nchwc:Upsample
    """,
    "still to be done": """
        MaxRoiPool DeformConv GridSample com.microsoft:GridSample Resize MaxUnpool OneHot Pad ScatterElements ScatterND
        LRN LpPool GlobalLpPool DFT STFT Conv Cast Attention BatchNormalization Where ConstantOfShape Identity
        LayerNormalization SimplifiedLayerNormalization
        com.microsoft:Attention com.microsoft:CDist com.microsoft:CausalConvWithState com.microsoft:LinearAttention
        com.microsoft:ConvTransposeWithDynamicPads com.microsoft:CropAndResize com.microsoft:DynamicTimeWarping
        com.microsoft:DecoderMaskedMultiHeadAttention com.microsoft:GatedRelativePositionBias
        com.microsoft:GroupQueryAttention com.microsoft:MRotaryEmbedding com.microsoft:MoE
        com.microsoft:MultiHeadAttention com.microsoft:PackedAttention com.microsoft:PackedMultiHeadAttention
        com.microsoft:RelativePositionBias com.microsoft:RestorePadding com.microsoft:SparseAttention
    """,
}
"""Ops of which some forms or types, or all, are left to NumPy, by reason."""
TYPES = {"string": "texts are objects of Python"}
"""Element types that are left to NumPy wherever they may stand."""
