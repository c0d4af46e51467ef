"""Every setting that is a text: config keys of sessions and runs, options of our providers, environment variables.

A setting is declared here and nowhere else. Whoever reads one takes its name and its default from here, and docs/configuration.md is
made from these tables (`make docs`). Nothing is imported, for each session imports this.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "sardonyx."
"""How the names of our own keys begin. A key that begins so and is not declared is refused; others may be onnxruntime's."""


class Setting(str):
    """The name of a setting, which also knows its default, the values that it takes and what they mean."""

    __slots__ = ("default", "values", "meaning")

    default: str
    """What holds where it is not set. "" stands for nothing."""
    values: tuple[str, ...] | str
    """All values that there are, or words that say which."""
    meaning: str

    def of(self, entries: Mapping[str, str]) -> str:
        """The value in a mapping by name, or else the default."""
        return entries.get(self, self.default)

    def is_on(self, entries: Mapping[str, str]) -> bool:
        """Whether a switch is "1"."""
        return entries.get(self, self.default) == "1"

    def takes(self, value: str) -> bool:
        """Whether a value is among those that there are. "" is where it is the default."""
        return not isinstance(self.values, tuple) or value in self.values or value == self.default

    def complaint(self, value: str) -> str:
        """What to say of a value that it does not take."""
        return f"{self} must be one of {', '.join(self.values)}, not {value!r}"


Table = dict[str, Setting]


def refusal(owner: str, kind: str, name: str, table: Table) -> str:
    """What to say of a name that `table` does not have."""
    nearest = _nearest(name, table, 0)
    return f"{owner} has no {kind} {name!r}; the nearest is {nearest[0]!r}" if nearest else f"{owner} has no {kind} {name!r}"


def is_misspelt(name: str, table: Table) -> bool:
    """Whether a name is likely meant for one that `table` has."""
    return bool(_nearest(name, table, 0.75))


def _nearest(name: str, table: Table, likeness: float) -> list[str]:
    from difflib import get_close_matches

    return get_close_matches(name, table, 1, likeness)


SESSION: Table = {}
"""Keys of `SessionOptions.add_session_config_entry`."""
RUN: Table = {}
"""Keys of `RunOptions.add_run_config_entry`."""
ENVIRONMENT: Table = {}
"""Environment variables."""
PROVIDER_OPTIONS: dict[str, Table] = {
    name: {} for name in ("CPUExecutionProvider", "OpenVINOExecutionProvider", "NullExecutionProvider")
}
"""Options of our providers by the provider's name. Providers of others check their own."""

SWITCH = ("0", "1")


def _setting(table: Table, name: str, default: str, values: tuple[str, ...] | str, meaning: str) -> Setting:
    setting = Setting(name)
    setting.default, setting.values, setting.meaning = default, values, meaning
    table[name] = setting
    return setting


# --- keys of sessions: our own

ACCURACY = _setting(
    SESSION, "sardonyx.accuracy", "default", ("exact", "default", "fast"), "How exact sums must be ([accuracy](accuracy.md))."
)
DEFAULTS_ARE_CONSTANTS = _setting(
    SESSION,
    "sardonyx.defaults_are_constants",
    "1",
    SWITCH,
    "Inputs with defaults count as constants until a run feeds one; `0` prepares the model at once for feeds that replace them.",
)
SUPPOSES_SIZES = _setting(
    SESSION,
    "sardonyx.supposes_sizes",
    "1",
    SWITCH,
    "Axes that a model squeezes where their size is 1 are supposed to have it, those that a Squeeze does not name to have another one, "
    "until a run contradicts; "
    "`0` prepares the model at once for all sizes.",
)
UNEQUAL_SIZES = _setting(
    SESSION,
    "sardonyx.unequal_sizes",
    "",
    "names, with semicolons between them",
    "Names that the model gives to several axes of its inputs, though their sizes differ; `*` stands for all names of sizes that it "
    "computes. The first run that has such sizes finds it out, and the model is prepared once more, which this spares.",
)
NCHWC_BLOCK_SIZE = _setting(
    SESSION,
    "sardonyx.nchwc_block_size",
    "",
    ("8", "16"),
    "How many channels a block has; without it, as many as suit the machine.",
)
NCHWC_TRANSFORMER = _setting(
    SESSION, "sardonyx.nchwc_transformer", "0", SWITCH, "Writes convolutions in blocks of channels ([optimizer](optimizer.md))."
)
NHWC_TRANSFORMER = _setting(
    SESSION,
    "sardonyx.nhwc_transformer",
    "0",
    SWITCH,
    "Writes quantized convolutions with channels last ([optimizer](optimizer.md)).",
)
REMEMBER = _setting(
    SESSION,
    "sardonyx.remember",
    "small",
    ("off", "small", "all"),
    "Whether what a session made of its model is kept for the next one, if it is small or in any case ([remembering](remembering.md)).",
)
REQUIRE_NATIVE = _setting(
    SESSION,
    "sardonyx.require_native",
    "0",
    SWITCH,
    "A node that would not run as machine code is an error, which says why ([compiler](compiler.md)).",
)
SHAPES_AFTER_PARENTS = _setting(
    SESSION,
    "sardonyx.shapes_after_parents",
    "0",
    SWITCH,
    "Puts Shape and Size right after what they read, in any execution order ([planning](planning.md)).",
)
ALLOW_COMPILED_CODE = _setting(
    SESSION,
    "session.allow_compiled_code",
    "0",
    SWITCH,
    "Trusts the machine code in a model compiled ahead of time ([aot](aot.md)).",
)
MAP_FILES = _setting(
    SESSION,
    "session.map_files",
    "0",
    SWITCH,
    "Maps the model's files instead of reading them: they must not change while the session lives ([formats](formats.md)).",
)
SAVE_PORTABLE_ORT = _setting(
    SESSION,
    "session.save_portable_ort",
    "1",
    SWITCH,
    "`0` saves nodes in the ORT format as they are, though onnxruntime may have no kernel for some ([ort-format](ort-format.md)).",
)
VERIFY_COMPILED_CONSTANTS = _setting(
    SESSION,
    "session.verify_compiled_constants",
    "0",
    SWITCH,
    "Checks all constants of a model compiled ahead of time, which takes as long as reading them ([aot](aot.md)).",
)
WINOGRAD = _setting(
    SESSION, "session.winograd", "auto", ("off", "auto"), "An old name: `off` means `exact` of `sardonyx.accuracy`."
)
OURS = frozenset(SESSION)
"""Keys that onnxruntime does not have."""

# --- keys of sessions: onnxruntime's

EP_CONTEXT_ENABLE = _setting(
    SESSION, "ep.context_enable", "0", SWITCH, "Writes the model compiled ahead of time ([aot](aot.md))."
)
EP_CONTEXT_FILE_PATH = _setting(
    SESSION, "ep.context_file_path", "", "a path", "Where the compiled model goes; without it, beside its source."
)
EP_CONTEXT_EMBED_MODE = _setting(
    SESSION, "ep.context_embed_mode", "0", SWITCH, "Whether compiled code stands inside the model or in a file beside it."
)
EP_CONTEXT_NODE_NAME_PREFIX = _setting(
    SESSION, "ep.context_node_name_prefix", "", "a text", "How the names of the compiled model's nodes begin."
)
EP_CONTEXT_SOURCE_MODEL_PATH = _setting(
    SESSION,
    "ep.context_source_model_path",
    "",
    "a path",
    "The model that a compiled one was made from, which runs where its code cannot be used.",
)
EP_CONTEXT_EXTERNAL_FILE = _setting(
    SESSION,
    "ep.context_model_external_initializers_file_name",
    "",
    "a file name",
    "The file beside the compiled model that gets its weights; without it they stand inside.",
)
CONSTANT_FOLDING_LIMIT = _setting(
    SESSION,
    "optimization.constant_folding_max_output_size_in_bytes",
    str(1 << 30),
    "a number of bytes",
    "Larger results are not computed when the model is prepared.",
)
CAST_CHAIN_ELIMINATION = _setting(
    SESSION,
    "optimization.enable_cast_chain_elimination",
    "0",
    SWITCH,
    "Makes one cast of several floating-point casts in a row.",
)
GELU_APPROXIMATION = _setting(
    SESSION, "optimization.enable_gelu_approximation", "0", SWITCH, "Replaces Gelu by its approximation with tanh."
)
MEMORY_OPTIMIZER_CONFIG = _setting(
    SESSION,
    "optimization.memory_optimizer_config",
    "",
    "texts `name:strategy:count` with commas between, or the path of a JSON file with a list of them",
    "What backward of a training model computes again in place of keeping it ([training](training.md#memory-of-steps-on-files)).",
)
MEMORY_PROBE_CONFIG = _setting(
    SESSION,
    "optimization.enable_memory_probe_recompute_config",
    "0:0",
    "a text that begins with `0` or `1`",
    "With `1`, products, softmax and normalizations may be computed again too.",
)
MINIMAL_BUILD_OPTIMIZATIONS = _setting(
    SESSION,
    "optimization.minimal_build_optimizations",
    "",
    ("save", "apply"),
    "After the basic level, `apply` makes only those rewrites that an ORT format file can keep; `save` makes none and keeps them in the "
    "file ([ort-format](ort-format.md)).",
)
DISABLE_CPU_FALLBACK = _setting(
    SESSION, "session.disable_cpu_ep_fallback", "0", SWITCH, "A node that would be left to the CPU is an error."
)
DISABLE_DOUBLE_QDQ_REMOVER = _setting(
    SESSION, "session.disable_double_qdq_remover", "0", SWITCH, "Keeps two quantizations in a row as they are."
)
DISABLE_MODEL_COMPILE = _setting(
    SESSION, "session.disable_model_compile", "0", SWITCH, "A provider other than the CPU's that would compile is an error."
)
DISABLE_PREPACKING = _setting(
    SESSION, "session.disable_prepacking", "0", SWITCH, "Keeps weights as the model has them ([prepacking](prepacking.md))."
)
DISABLE_QUANT_QDQ = _setting(
    SESSION, "session.disable_quant_qdq", "0", SWITCH, "Leaves the pairs of QuantizeLinear and DequantizeLinear as they are."
)
DQ_MATMULNBITS_FUSION = _setting(
    SESSION,
    "session.enable_dq_matmulnbits_fusion",
    "0",
    SWITCH,
    "Multiplies by weights of few bits as MatMulNBits at the basic level already.",
)
QUANT_QDQ_CLEANUP = _setting(
    SESSION,
    "session.enable_quant_qdq_cleanup",
    "0",
    SWITCH,
    "Removes what is left of QuantizeLinear followed by DequantizeLinear.",
)
SAVED_RUNTIME_OPTIMIZATIONS = _setting(
    SESSION, "session.enable_saved_runtime_optimizations", "0", SWITCH, "Makes the rewrites that an ORT format file keeps."
)
OPTIMIZATIONS_LOOP_LEVEL = _setting(
    SESSION,
    "session.graph_optimizations_loop_level",
    "1",
    ("0", "1", "2"),
    "`0` runs the levels after the basic one once instead of until nothing changes.",
)
ALLOW_SPINNING = _setting(
    SESSION,
    "session.intra_op.allow_spinning",
    "1",
    SWITCH,
    "Idle threads look for work a while before they sleep.",
)
THREAD_AFFINITIES = _setting(
    SESSION,
    "session.intra_op_thread_affinities",
    "",
    "processors, as `1,2;3-4`",
    "Checked, and without effect: the system places threads.",
)
LOAD_MODEL_FORMAT = _setting(
    SESSION,
    "session.load_model_format",
    "",
    ("ONNX", "ORT"),
    "The format of the model; without it, the name or the first bytes say.",
)
EXTERNAL_INITIALIZERS_FOLDER = _setting(
    SESSION,
    "session.model_external_initializers_file_folder_path",
    "",
    "a path",
    "The folder of external data of a model that is given as bytes.",
)
OPTIMIZED_MODEL_EXTERNAL_FILE = _setting(
    SESSION,
    "session.optimized_model_external_initializers_file_name",
    "",
    "a file name",
    "The file beside an optimized model that gets its weights; without it they stand inside.",
)
OPTIMIZED_MODEL_EXTERNAL_MIN_SIZE = _setting(
    SESSION,
    "session.optimized_model_external_initializers_min_size_in_bytes",
    "1024",
    "a number of bytes",
    "Smaller weights stay in the optimized model itself.",
)
MATMULNBITS_ACCURACY_LEVEL = _setting(
    SESSION,
    "session.qdq_matmulnbits_accuracy_level",
    "0",
    "a number",
    "The attribute `accuracy_level` of the MatMulNBits that the optimizer makes.",
)
MATMULNBITS_BLOCK_SIZE = _setting(
    SESSION,
    "session.qdq_matmulnbits_block_size",
    "0",
    "a power of two from 16 to 256, `0` for 32, `-1` for what fits best",
    "The length of blocks where a model has one scale for a whole column.",
)
RECORD_ASSIGNMENT = _setting(
    SESSION,
    "session.record_ep_graph_assignment_info",
    "0",
    SWITCH,
    "Lets `get_provider_graph_assignment_info` say which provider got which nodes.",
)
SAVE_PREPACKED = _setting(
    SESSION,
    "session.save_external_prepacked_constant_initializers",
    "0",
    SWITCH,
    "Saves packed weights with an optimized model ([prepacking](prepacking.md)).",
)
SAVE_MODEL_FORMAT = _setting(
    SESSION, "session.save_model_format", "", ("ONNX", "ORT"), "The format of the optimized model; without it, its name says."
)
STRICT_INFERENCE = _setting(
    SESSION,
    "session.strict_shape_type_inference",
    "0",
    SWITCH,
    "A declared shape that inference contradicts is an error instead of a warning.",
)
MAPPED_ORT_MODEL = _setting(
    SESSION, "session.use_memory_mapped_ort_model", "0", SWITCH, "Maps an ORT format file instead of reading it."
)
ORT_BYTES_DIRECTLY = _setting(
    SESSION,
    "session.use_ort_model_bytes_directly",
    "0",
    SWITCH,
    "Uses the bytes of an ORT format model without a copy; they must not change.",
)

# --- keys of runs

ARENA_SHRINKAGE = _setting(
    RUN,
    "memory.enable_memory_arena_shrinkage",
    "",
    "devices, as `cpu:0`",
    "Gives kept memory back when the run ends ([planning](planning.md)).",
)

# --- options of providers

_CPU, _OPENVINO, _NULL = PROVIDER_OPTIONS.values()

CPU_ACCURACY = _setting(
    _CPU,
    "accuracy",
    "default",
    ("exact", "default", "fast"),
    "How exact sums must be; goes before the session's `sardonyx.accuracy`.",
)
NATIVE = _setting(
    _CPU, "native", "1", SWITCH, "`0` computes everything with NumPy, without compiled code ([compiler](compiler.md))."
)
CPU_HURRY = _setting(
    _CPU,
    "hurry",
    "1",
    SWITCH,
    "`0` has the session wait for the best code of new kernels, as `use_deterministic_compute` does "
    "([remembering](remembering.md#in-a-hurry)).",
)
MAX_CONSTANT_BYTES = _setting(
    _CPU,
    "max_constant_bytes",
    "",
    "a number of bytes",
    "How many bytes of constants the provider may take; without it, all. Every provider has it.",
)
OPENVINO_DEVICE = _setting(_OPENVINO, "device_type", "CPU", "a device of OpenVINO", "Where OpenVINO runs the model.")
OPENVINO_THREADS = _setting(
    _OPENVINO, "num_of_threads", "0", "a number", "How many threads OpenVINO uses, `0` for its own choice."
)
OPENVINO_PRECISION = _setting(
    _OPENVINO,
    "precision",
    "FP32",
    ("FP32", "FP16", "BF16", "ACCURACY"),
    "The type in which OpenVINO computes; `ACCURACY` is `FP32`.",
)
OPENVINO_CACHE = _setting(_OPENVINO, "cache_dir", "", "a path", "Where OpenVINO keeps compiled models; without it, nowhere.")
OPENVINO_DISABLED = _setting(
    _OPENVINO, "disabled_ops", "", "op names, as `Softmax;Conv`", "Ops that are left to other providers."
)
NULL_FUSE = _setting(_NULL, "fuse", "1", SWITCH, "`0` takes nodes one by one.")
for _table in (_OPENVINO, _NULL):
    _table[MAX_CONSTANT_BYTES] = MAX_CONSTANT_BYTES

# --- environment variables

CACHE_DIRECTORY = _setting(
    ENVIRONMENT,
    "SARDONYX_CACHE_DIR",
    "`sardonyx` in the user's cache folder",
    "a path",
    "Where compiled code is kept for later processes; empty keeps nothing ([compiler](compiler.md)).",
)
CACHE_BYTES = _setting(
    ENVIRONMENT,
    "SARDONYX_CACHE_BYTES",
    str(256 << 20),
    "a number of bytes",
    "How much that folder may hold before its oldest entries go.",
)
HURRY = _setting(
    ENVIRONMENT,
    "SARDONYX_HURRY",
    "0",
    SWITCH,
    "Whether kernels that nobody has compiled yet are compiled in a hurry, and well after the first results "
    "([remembering](remembering.md#in-a-hurry)).",
)
REMEMBER_VARIABLE = _setting(
    ENVIRONMENT,
    "SARDONYX_REMEMBER",
    "small",
    ("off", "small", "all"),
    "Whether prepared models are kept, for sessions that do not say so themselves ([remembering](remembering.md)).",
)
MODELS_BYTES = _setting(
    ENVIRONMENT,
    "SARDONYX_MODELS_BYTES",
    str(256 << 20),
    "a number of bytes",
    "How much all of these models may take before the oldest go.",
)
CPU_LEVEL = _setting(
    ENVIRONMENT,
    "SARDONYX_CPU",
    "",
    ("sse2", "avx2", "avx512", "avx512vnni"),
    "Compiles for less than the CPU has; without it, for all that it has.",
)
ALLOW_COMPILED_CODE_VARIABLE = _setting(
    ENVIRONMENT, "SARDONYX_ALLOW_COMPILED_CODE", "0", SWITCH, "What `session.allow_compiled_code` says, for all sessions."
)
STRICT = _setting(
    ENVIRONMENT,
    "SARDONYX_STRICT",
    "0",
    SWITCH,
    "Raises faults of ours that are otherwise worked around with a warning, as tests want it.",
)
PROGRESS = _setting(
    ENVIRONMENT,
    "SARDONYX_PROGRESS",
    "1",
    SWITCH,
    "On a terminal, says what a session does that takes more than a second to make; `0` says nothing.",
)
CONVERSION_LEVEL = _setting(
    ENVIRONMENT,
    "ORT_CONVERT_ONNX_MODELS_TO_ORT_OPTIMIZATION_LEVEL",
    "all",
    ("disable", "basic", "extended", "layout", "all"),
    "How far `sardonyx.tools.convert_onnx_models_to_ort` optimizes.",
)
CONFIG_FROM_MODEL = _setting(
    ENVIRONMENT, "ORT_LOAD_CONFIG_FROM_MODEL", "0", SWITCH, "Takes session options from the model's metadata (`ort_config`)."
)
BACKEND_EXCLUDES = _setting(
    ENVIRONMENT,
    "ORT_ONNX_BACKEND_EXCLUDE_PROVIDERS",
    "",
    "names of providers with commas between",
    "Providers that `sardonyx.backend` does not use.",
)
DEBUG_NODES = "ORT_DEBUG_NODE_IO_"
"""How the variables begin that say which values `sardonyx.transformers.models.gpt2.parity_check_helper` writes, and where."""
