"""Converts tiny models with random weights: python converted_models.py FOLDER.

Prints how far onnxruntime and sardonyx are from PyTorch with each file, and which ops the files have.
"""

import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
import transformers as hub

import sardonyx
from sardonyx.transformers.encoder_decoders import DECODER, ENCODER, ENCODER_OF_CACHES, FIRST_STEP, SIZES, Part
from sardonyx.transformers.models.bart import export as bart_export
from sardonyx.transformers.models.llama import convert_to_onnx as llama_converter
from sardonyx.transformers.models.t5 import convert_to_onnx as t5_converter
from sardonyx.transformers.models.whisper import convert_to_onnx as whisper_converter
from sardonyx.transformers.models.whisper.whisper_helper import DECODER_INIT, ENCODER_AND_CACHES

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
print(json.dumps(results))
