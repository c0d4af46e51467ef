"""Converts tiny models with random weights: python converted_models.py FOLDER.

Prints how far onnxruntime and sardonyx are from PyTorch with each file, and which ops the files have.
"""

import importlib
import json
import os
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import torch
import transformers as hub

import sardonyx
from sardonyx.tools import pytorch_export_contrib_ops
from sardonyx.transformers import bert_perf_test
from sardonyx.transformers.encoder_decoders import (
    DECODER,
    DECODER_INIT,
    ENCODER,
    ENCODER_AND_CACHES,
    ENCODER_OF_CACHES,
    FIRST_STEP,
    SIZES,
    Part,
)
from sardonyx.transformers.models.bart import export as bart_export
from sardonyx.transformers.models.gpt2 import convert_to_onnx as gpt2_converter
from sardonyx.transformers.models.gpt2 import gpt2_helper
from sardonyx.transformers.models.gpt2.stacked import Stacked
from sardonyx.transformers.models.llama import convert_to_onnx as llama_converter
from sardonyx.transformers.models.llama import dist_settings, llama_inputs
from sardonyx.transformers.models.sam2 import sam2_utils
from sardonyx.transformers.models.t5 import convert_to_onnx as t5_converter
from sardonyx.transformers.models.whisper import convert_to_onnx as whisper_converter
from sardonyx.transformers.models.whisper import whisper_inputs
from sardonyx.transformers.torch_onnx_export_helper import torch_onnx_export

folder = Path(sys.argv[1])
torch.manual_seed(0)
torch.set_grad_enabled(False)
results = {}

LAYERS = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
WIDTHS = {"vocab_size": 60, "d_model": 32, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
SOUND = {"max_source_positions": 20, "max_target_positions": 30, "num_mel_bins": 8, "begin_suppress_tokens": None}
T5 = {"vocab_size": 60, "d_model": 32, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4}
LLAMA = {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
models = {
    "t5": hub.T5ForConditionalGeneration(hub.T5Config(**T5, decoder_start_token_id=0)),
    "bart": hub.BartForConditionalGeneration(hub.BartConfig(**LAYERS, **WIDTHS, max_position_embeddings=40)),
    "whisper": hub.WhisperForConditionalGeneration(hub.WhisperConfig(**LAYERS, **WIDTHS, **TOKENS, **SOUND)),
    "llama": hub.LlamaForCausalLM(hub.LlamaConfig(**LLAMA, num_key_value_heads=4, max_position_embeddings=40)),
    "grouped": hub.LlamaForCausalLM(hub.LlamaConfig(**LLAMA, num_key_value_heads=2, max_position_embeddings=40)),
}
for name, model in models.items():
    model.eval().save_pretrained(folder / name)


def difference(session, part, sizes):
    return part.difference_of(session, len(sizes), sizes)


def note(name, path, part, sizes=SIZES):
    """Both runtimes beside PyTorch, and the ops of the file."""
    sessions = [runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"]) for runtime in (onnxruntime, sardonyx)]
    ops = Counter(node.op_type for node in onnx.load(path, load_external_data=False).graph.node)
    results[name] = {"differences": [difference(session, part, sizes) for session in sessions], "ops": ops}


def eager(name, **options):
    loader = type(models[name])
    return loader.from_pretrained(folder / name, attn_implementation="eager", **options).eval()


def parts_of(name, **kinds):
    model = eager(name)
    return {kind: Part(model, *given) for kind, given in kinds.items()}


t5 = parts_of("t5", encoder=ENCODER_OF_CACHES, decoder=DECODER, encoder_decoder_init=FIRST_STEP)
common = ["-m", str(folder / "t5"), "--output", str(folder / "t5 files")]
for path in t5_converter.main([*common, "-o"]):
    kind = next(kind for kind in ("encoder", "decoder") if f"_{kind}_" in Path(path).name)
    note(f"t5 {kind}", path, t5[kind])
for path in t5_converter.main([*common, "-o", "-p", "fp16", "--encoder_decoder_init", "-e"]):
    kind = "encoder_decoder_init" if "init" in Path(path).name else "decoder"
    note(f"t5 {kind} fp16", path, t5[kind])
(raw, _) = t5_converter.main([*common, "--encoder_decoder_init", "-s", "-w", "--use_int64_inputs"])
note("t5 first step without words", raw, t5["encoder_decoder_init"].without_words().with_integers(np.int64))

bart = parts_of("bart", edinit=FIRST_STEP, decoder_past=DECODER)
try:
    bart_export.main(["-m", str(folder / "bart"), "-o", str(folder / "bart files")])
except NotImplementedError as error:
    results["bart refusal"] = str(error)
for path in bart_export.main(["-m", str(folder / "bart"), "-o", str(folder / "bart files"), "--no_chain", "--no_inference"]):
    note(f"bart {Path(path).stem}", path, bart[Path(path).stem])

whisper = eager("whisper")
merged = {"encoder": Part(whisper, *ENCODER_AND_CACHES, source_name="audio_features"), "decoder": Part(whisper, *DECODER)}
separate = {"encoder": Part(whisper, *ENCODER, source_name="audio_features"), "decoder_init": Part(whisper, *DECODER_INIT)}
common = ["-m", str(folder / "whisper"), "--no_beam_search_op", "-o", "--output"]
for precision in ("fp32", "fp16", "int8"):
    for path in whisper_converter.main([*common, str(folder / f"whisper {precision}"), "-p", precision]):
        kind = Path(path).stem.split("_")[1]
        note(f"whisper {kind} {precision}", path, merged[kind])
for path in whisper_converter.main([*common, str(folder / "separate"), "--separate_encoder_and_decoder_init"]):
    kind = Path(path).stem.removeprefix("whisper_").removesuffix("_fp32")
    if kind in separate:
        note(f"whisper {kind} alone", path, separate[kind])

for name in ("llama", "grouped"):
    decoder = llama_converter.Decoder(eager(name))
    first = llama_converter.Decoder(eager(name), with_past=False)
    common = ["-m", str(folder / name), "-o", str(folder / f"{name} files"), "-p"]
    for precision, extra in (("fp32", []), ("fp16", []), ("int8", ["-q", "quantize_dynamic"]), ("int4", [])):
        (path,) = llama_converter.main([*common, precision, *extra])
        note(f"{name} {precision}", path, decoder, llama_converter.SIZES)
    for path in llama_converter.main([*common, "fp32", "--no_merged"]):
        note(f"{name} {Path(path).stem}", path, decoder if "past" in Path(path).stem else first, llama_converter.SIZES)

(path,) = llama_converter.main(["-m", str(folder / "llama"), "-o", str(folder / "gqa"), "--use_gqa"])
note("llama of groups", path, llama_converter.Decoder(eager("llama")), llama_converter.SIZES_WITHOUT_GAPS)
# --- inputs of decoders, as arrays and as tensors, in memory of their own and in bound memory
small = models["llama"].config
session = sardonyx.InferenceSession(
    llama_converter.main(["-m", str(folder / "llama"), "-o", str(folder / "again"), "-p", "fp32"])[0]
)
torch.manual_seed(1)
given = llama_inputs.get_merged_sample_with_past_kv_inputs(small, "cpu", 2, 3, 4, 9, return_dict=True)
arrays = llama_inputs.convert_inputs_for_ort(given)
arrays = llama_inputs.verify_ort_inputs(session, arrays | {"unknown": np.zeros(1)})
cache = hub.DynamicCache()
for layer, pair in enumerate(given.pop("past_key_values")):
    cache.update(*pair, layer)
given["position_ids"] = given["position_ids"].expand(2, 3) * 0 + torch.arange(4, 7)
arrays["position_ids"] = given["position_ids"].numpy()
wanted = models["llama"](**given, past_key_values=cache).logits.numpy()
binding, _ = llama_inputs.add_io_bindings_as_ortvalues(session, arrays, "cpu", 0, False, {})
session.run_with_iobinding(binding)
tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
outputs = {"logits": torch.zeros(2, 3, small.vocab_size)}
outputs |= {name.replace("past_key_values", "present"): torch.zeros(2, 4, 7, 8) for name in tensors if "past" in name}
bound = llama_inputs.add_io_bindings_as_tensors(session, tensors, outputs, False, False)
session.run_with_iobinding(bound)
empty = {name: np.zeros_like(tensor.numpy()) for name, tensor in outputs.items()}
made = bert_perf_test.create_input_output_tensors(arrays, empty, "cpu")
session.run_with_iobinding(bert_perf_test.create_io_binding(session, *made))
all_logits = session.run(["logits"], arrays)[0], binding.copy_outputs_to_cpu()[0], outputs["logits"], made[1]["logits"]
for got in map(np.asarray, all_logits):
    np.testing.assert_allclose(got, wanted, atol=1e-5)
assert bert_perf_test.numpy_type(torch.float16) is np.float16
os.environ |= {"LOCAL_RANK": "0", "RANK": "0", "WORLD_SIZE": "1"}
dist_settings.init_dist()
assert torch.distributed.get_backend() == "gloo" and (dist_settings.get_rank(), dist_settings.get_size()) == (0, 1)
dist_settings.barrier()
torch.distributed.destroy_process_group()
assert sam2_utils.random_sam2_input_image(2, 4, 5).shape == (2, 3, 4, 5)
prompt = llama_inputs.get_sample_inputs(small, "cpu", 2, 3, engine="ort", return_dict=True)
assert prompt["position_ids"].tolist() == [[0, 1, 2]] * 2
token = llama_inputs.get_sample_with_past_kv_inputs(small, "cpu", 2, 4, engine="ort", return_dict=True)
assert token["position_ids"].tolist() == [[4]] * 2 and token["past_key_values.1.value"].shape == (2, 4, 4, 8)
wide = llama_inputs.enable_past_present_share_buffer(dict(token), 4, 9)["past_key_values.0.key"]
assert wide.shape == (2, 4, 9, 8) and (wide[:, :, :4] == token["past_key_values.0.key"]).all() and not wide[:, :, 4:].any()


class Tokenizer:
    """Words as numbers by their lengths."""

    eos_token = "end"

    def __call__(self, prompts, padding):
        rows = [[len(word) for word in prompt.split()] for prompt in prompts]
        longest = max(map(len, rows))
        pad = [[0] * (longest - len(row)) for row in rows]
        masks = [[0] * len(gap) + [1] * len(row) for gap, row in zip(pad, rows)]
        return {"input_ids": [gap + row for gap, row in zip(pad, rows)], "attention_mask": masks}


prompts = ["one three", "a"]
fed, places = llama_inputs.get_initial_inputs_and_outputs(small, Tokenizer(), 3, prompts, "cpu", False, False, "ort")
assert fed["input_ids"].tolist() == [[3, 3, 5], [0, 0, 1]] and fed["position_ids"].tolist() == [[0, 1, 2], [1, 1, 0]]
bound = llama_inputs.add_io_bindings_as_tensors(session, fed, places, False, False)
session.run_with_iobinding(bound)
arrays = {name: tensor.numpy() for name, tensor in fed.items()}
np.testing.assert_array_equal(places["logits"].numpy(), session.run(["logits"], arrays)[0])

# --- inputs of Whisper's parts: the original's own function is the measure
theirs = importlib.import_module("onnxruntime.transformers.models.whisper.whisper_inputs")
sound = models["whisper"].config
paths = whisper_converter.main(["-m", str(folder / "whisper"), "--no_beam_search_op", "-o", "--output", str(folder / "sound")])
for path in paths:
    part = merged[Path(path).stem.split("_")[1]]
    given = whisper_inputs.get_sample_encoder_decoder_init_inputs(sound, "cpu", 2, 3, 2 * sound.max_source_positions)
    if part is merged["decoder"]:
        given = whisper_inputs.get_sample_decoder_inputs(sound, "cpu", 2, 4, 3)
    session = sardonyx.InferenceSession(path)
    feeds = whisper_inputs.convert_inputs_for_ort(given, session)
    other = theirs.convert_inputs_for_ort(given, session)
    assert list(feeds) == list(other) and all((feeds[name] == other[name]).all() for name in feeds)
    for got, wanted in zip(session.run(part.output_names, feeds), part.run(feeds), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-5)
    names = part.input_names, [*part.output_names, "jump_times", "cross_qk_0", "alignment_heads", "segment_length"]
    assert whisper_inputs.get_model_dynamic_axes(sound, *names) == theirs.get_model_dynamic_axes(sound, *names)
jumps = whisper_inputs.get_sample_jump_times_inputs(sound, "cpu", 2, 3, 6, 4, 5)
assert {name: len(value) for name, value in jumps.items()} == {
    "alignment_heads": 6, "sot_sequence_length": 1, "segment_length": 1, "QKs": 2
}  # fmt: skip
only = SimpleNamespace(
    get_inputs=lambda: [SimpleNamespace(name=name) for name in ("cross_qk_0", "cross_qk_1", "segment_length")]
)
feeds = whisper_inputs.convert_inputs_for_ort(jumps, only)
assert feeds["segment_length"].tolist() == [5] and (feeds["cross_qk_1"] == jumps["QKs"][1].numpy()).all()

# --- functions of PyTorch as ops of com.microsoft, in an opset that has none of them


class Functions(torch.nn.Module):
    def forward(self, x, grid):
        y = torch.nn.functional.gelu(torch.inverse(x).triu() + x.tril(-1))
        y = y + torch.nn.functional.gelu(x, approximate="tanh")
        return torch.nn.functional.grid_sample(y[None], grid, align_corners=True)


example = torch.randn(1, 4, 4) + 4 * torch.eye(4), torch.rand(1, 3, 3, 2) * 2 - 1
pytorch_export_contrib_ops.register()
torch_onnx_export(Functions(), example, folder / "functions.onnx", input_names=["x", "grid"], opset_version=12)
pytorch_export_contrib_ops.unregister()
ops = {node.op_type for node in onnx.load(folder / "functions.onnx").graph.node if node.domain == "com.microsoft"}
assert ops == {"Gelu", "FastGelu", "Inverse", "Trilu", "GridSample"}, ops
torch_onnx_export(torch.nn.GELU(), (torch.randn(3),), folder / "plain.onnx", opset_version=17)
assert all(node.domain == "" for node in onnx.load(folder / "plain.onnx").graph.node)
for runtime in (onnxruntime, sardonyx):
    feeds = {"x": example[0].numpy(), "grid": example[1].numpy()}
    got = runtime.InferenceSession(str(folder / "functions.onnx"), providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    np.testing.assert_allclose(got, Functions()(*example).numpy(), atol=1e-4)

gpt2 = hub.GPT2Config(vocab_size=60, n_embd=32, n_layer=2, n_head=4, n_positions=40, bos_token_id=1, eos_token_id=2)
for kind, (loader, output, has_words) in gpt2_helper.MODEL_CLASSES.items():
    module = loader(gpt2).eval()
    paths = gpt2_helper.Gpt2Helper.get_onnx_paths(str(folder / "gpt2 files"), "gpt2", kind)
    words = {"has_position_ids": has_words, "has_attention_mask": has_words}
    gpt2_helper.Gpt2Helper.export_onnx(module, "cpu", paths["raw"], **words)
    gpt2_helper.Gpt2Helper.optimize_onnx(paths["raw"], paths["fp32"], False, 4, 32)
    for precision in ("raw", "fp32"):
        note(f"{kind} {precision}", paths[precision], Stacked(module, output, has_words, has_words), gpt2_converter.SIZES)
        session = sardonyx.InferenceSession(paths[precision])
        for is_bound in (False, True):
            agreed = gpt2_helper.Gpt2Helper.test_parity(
                session, module, "cpu", test_cases_per_run=10, use_io_binding=is_bound, model_class=kind, **words
            )
            assert agreed["diff_pass_rate"] == 1.0, agreed
print(json.dumps(results))
