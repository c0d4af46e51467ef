"""What runs at each level, in this order. A rule or pass that is not listed here does not run."""

from __future__ import annotations

from sardonyx import settings
from sardonyx.optimizer.passes.constants import fold_constants, fold_dequantized, remove_unused, share_constants
from sardonyx.optimizer.passes.subexpressions import eliminate_common_subexpressions
from sardonyx.optimizer.pipeline import Late, Level, Stage
from sardonyx.optimizer.rules import (
    activation,
    conv,
    elimination,
    embedding,
    epilogue,
    linalg,
    normalization,
    quantize,
    quantize_transposed,
    quantize_units,
    shape,
)

GEMM_TRANSPOSES = [linalg.transpose_first_factor, linalg.transpose_second_factor, linalg.transpose_product]

LEVEL_1_RULES = [
    elimination.eliminate_identity,
    elimination.eliminate_slice,
    elimination.unsqueeze_constant,
    elimination.eliminate_dropout,
    elimination.eliminate_expand,
    elimination.eliminate_tile,
    elimination.eliminate_cast,
    elimination.skip_exact_cast,
    elimination.eliminate_copied_truth,
    elimination.shape_before_cast,
    elimination.eliminate_zero,
    elimination.eliminate_one,
    elimination.eliminate_single_operand,
    elimination.divide_instead,
    elimination.clip_without_relu,
    elimination.swap_where,
    linalg.add_in_gemm,
    *GEMM_TRANSPOSES,
    conv.pad_in_convolution,
    conv.pad_in_average,
    conv.pad_in_maximum,
    conv.fold_batch_normalization,
    conv.add_to_bias,
    conv.scale_weights,
    linalg.fold_into_matmul,
    linalg.fold_into_gemm,
]

TRANSPOSES = Stage("TransposeOptimizer", run=Late("transpose", "optimize_transposes"), ops="Transpose")
DEQUANTIZE = "DequantizeLinear|com.microsoft.DequantizeLinear"
FEW_BITS = Late("qdq_bits", "multiply_few_bits")
TEXTS = "|".join(
    f"ai.onnx.ml.{name}" for name in ("OneHotEncoder", "LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier")
)
"""Ops that may take or give texts."""

SEQUENCES = "SequenceAt|SequenceLength|ConcatFromSequence|OptionalGetElement|OptionalHasElement"
"""Ops that read sequences and optional values."""

NO_QDQ = settings.DISABLE_QUANT_QDQ

QDQ_PAIRS = [
    Stage("DoubleQDQPairsRemover", [quantize.quantize_once], unless=settings.DISABLE_DOUBLE_QDQ_REMOVER),
    Stage(
        "QDQPropagationTransformer",
        [quantize.move_then_dequantize, quantize.quantize_then_move, quantize.cancel_dequantize],
        unless=NO_QDQ,
    ),
    Stage(
        "WeightBiasQuantization",
        run=Late("qdq", "quantize_weights_and_biases"),
        unless=NO_QDQ,
        ops=DEQUANTIZE,
    ),
    Stage(
        "EnsureUniqueDQForNodeUnit",
        run=Late("qdq", "unique_dequantization"),
        unless=NO_QDQ,
        once=True,
        ops=DEQUANTIZE,
    ),
    Stage("WhereDummyDq", [quantize.quantize_scalar_branch], unless=NO_QDQ),
    Stage(
        "DQMatMulNBitsFusion",
        run=FEW_BITS,
        switch=settings.DQ_MATMULNBITS_FUSION,
        ops=DEQUANTIZE,
    ),
]

QDQ_UNITS = [
    Stage("Level2_RuleBasedTransformer", [quantize.drop_relu, quantize.drop_clip], unless=NO_QDQ),
    Stage("QDQSelectorActionTransformer", [*quantize_units.UNITS, *quantize_transposed.TRANSPOSED], unless=NO_QDQ),
    Stage("QDQSelectorActionTransformer", run=FEW_BITS, unless=NO_QDQ, ops=DEQUANTIZE),
    Stage("MatMulIntegerToFloatFusion", [quantize.scale_integer_product, quantize.bias_of_integer_product]),
    Stage("DynamicQuantizeMatMulFusion", [quantize.dynamic_product]),
    Stage("QDQFinalCleanupTransformer", [quantize.cancel_dequantize], unless=NO_QDQ),
    Stage("QDQFinalCleanupTransformer", [quantize.cancel_quantize], switch=settings.QUANT_QDQ_CLEANUP),
    Stage("QDQFinalCleanupTransformer", run=Late("qdq", "merge_dequantization"), unless=NO_QDQ, ops=DEQUANTIZE),
]

LEVELS: dict[Level, list[Stage]] = {
    Level.BASIC: [
        Stage("CastFloat16Transformer", run=Late("half", "compute_in_float32"), once=True),
        Stage("Level1_RuleBasedTransformer", LEVEL_1_RULES),
        Stage(
            "CastChainElimination",
            [elimination.merge_float_casts],
            switch=settings.CAST_CHAIN_ELIMINATION,
        ),
        Stage("ConstantSharing", run=share_constants, once=True),
        Stage("CommonSubexpressionElimination", run=eliminate_common_subexpressions),
        Stage("ConstantFolding", run=fold_constants),
        Stage("ConstantFolding", run=Late("control", "inline_taken_branches"), ops="If"),
        Stage("SequenceResolution", run=Late("sequences", "resolve_sequences"), ops=SEQUENCES),
        Stage("EqualRanks", run=Late("ranks", "give_equal_ranks"), ops="If|Loop"),
        Stage("EqualRanks", run=Late("squeezing", "suppose_long_axes"), ops="Squeeze"),
        Stage("LoopInvariants", run=Late("loops", "keep_invariants"), ops="Loop|Scan"),
        Stage("LabelEncoderFusion", run=Late("label_encoder", "compose_label_encoders"), ops="ai.onnx.ml.LabelEncoder"),
        Stage("ReshapeFusion", [shape.constant_shape, shape.eliminate_view, shape.merge_views]),
        Stage("SliceConcatToSpaceToDepthFusion", [conv.space_to_depth, conv.reorder_weights]),
        Stage("GeluFusion", [activation.gelu]),
        Stage("LayerNormFusion", [normalization.layer_normalization, normalization.without_scale, normalization.add_bias]),
        *QDQ_PAIRS,
        Stage("MatMulAddFusion", [linalg.bias_outside_attention]),
        Stage("RemoveUnused", run=remove_unused),
        TRANSPOSES,
    ],
    Level.EXTENDED: [
        *QDQ_UNITS,
        Stage("CategoryNumbering", run=Late("categories", "number_texts"), ops=TEXTS),
        Stage("DistanceFusion", run=Late("scanning", "find_distances"), ops="Scan"),
        Stage("GeluFusion", [activation.contrib_gelu]),
        Stage("LayerNormFusion", [normalization.old_layer_normalization, normalization.add_bias]),
        Stage("SimplifiedLayerNormFusion", [normalization.rms_normalization]),
        Stage(
            "RotaryEmbeddingFusion",
            run=Late("rotary", "fuse_rotary_embeddings"),
            ops="Neg|RotaryEmbedding|com.microsoft.RotaryEmbedding",
        ),
        Stage("AttentionFusion", run=Late("attention", "fuse_attention"), ops="Softmax|Attention"),
        Stage("EmbedLayerNormFusion", [embedding.shape_of_lookup, embedding.embed_layer_normalization]),
        # what stands above reads whole idioms, attention too; what follows takes their parts
        Stage("ReshapeFusion", [linalg.product_of_stack]),
        Stage("FastGeluFusion", [activation.fast_gelu]),
        Stage("QuickGeluFusion", [activation.quick_gelu]),
        Stage("MatMulAddFusion", [linalg.bias_of_matrix]),
        Stage("GemmTransposeFusion", GEMM_TRANSPOSES),
        Stage("GemmActivationFusion", [epilogue.fuse_gemm_activation]),
        Stage("ConvActivationFusion", [epilogue.fuse_activation, epilogue.fuse_clip]),
        Stage("GatherSliceToSplitFusion", run=Late("splitting", "split_once"), ops="Gather|Slice"),
        Stage("GatherToSliceFusion", [shape.slice_range]),
        Stage("MatmulTransposeFusion", [linalg.transposed_first, linalg.transposed_second]),
        Stage("MatMulNBitsFusion", [linalg.bias_of_bits]),
        Stage("BiasGeluFusion", [activation.bias_gelu, activation.bias_fast_gelu]),
        Stage("SkipLayerNormFusion", [normalization.skip_layer_normalization, normalization.skip_rms_normalization]),
        Stage("BiasSkipLayerNormFusion", [normalization.bias_before_skip]),
        Stage(
            "GeluApproximation",
            [activation.approximate_gelu],
            switch=settings.GELU_APPROXIMATION,
        ),
        Stage("MatMulScaleFusion", [linalg.scale_product, linalg.scale_first, linalg.scale_second]),
        Stage("RemoveUnused", run=remove_unused),
        TRANSPOSES,
    ],
    Level.LAYOUT: [
        Stage("ConstantFolding", run=fold_dequantized, unless=NO_QDQ, ops=DEQUANTIZE),
        Stage("ConvAddActivationFusion", [epilogue.fuse_sum, epilogue.fuse_activation_of_sum, epilogue.fuse_clip_of_sum]),
        Stage("NchwcTransformer", run=Late("nchwc", "block_convolutions"), switch=settings.NCHWC_TRANSFORMER),
        Stage("NhwcTransformer", run=Late("nhwc", "convolve_channels_last"), switch=settings.NHWC_TRANSFORMER),
    ],
    Level.ALL: [],
}
