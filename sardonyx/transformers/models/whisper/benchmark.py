"""Time and memory that Whisper takes for a recording, by the transformers package, by optimum, or by sessions of exported files.

`python -m sardonyx.transformers.models.whisper.benchmark -bt ort -m MODEL -p fp32 --ort-model-path FOLDER -a speech.wav`
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import time
import wave
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.api.session import InferenceSession
from sardonyx.transformers.benchmark_helper import measure_memory, run_times, set_random_seed, setup_logger
from sardonyx.transformers.io_binding_helper import TypeHelper
from sardonyx.transformers.model_timing import refuse_gpu
from sardonyx.transformers.step_times import optimum_package
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch, transformers_package

logger = logging.getLogger(__name__)
Inputs = Mapping[str, Any]
SEARCH = ("num_beams", "num_return_sequences", "length_penalty", "repetition_penalty", "no_repeat_ngram_size", "temperature")
"""Arguments of the transformers package's search."""


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = ["hf-pt-eager", "hf-pt-compile", "hf-ort", "ort"]
    parser.add_argument("-bt", "--benchmark-type", required=True, choices=kinds, help="what is measured")
    parser.add_argument("-m", "--model-name", required=True, help="name or folder of the model, whose processor is used")
    parser.add_argument("-p", "--precision", default="fp32", choices=["int4", "int8", "fp16", "fp32"], help="of the files")
    parser.add_argument("--hf-pt-model-path", default="", help="folder of the model for PyTorch; by default as named")
    parser.add_argument("--hf-ort-dir-path", default="", help="folder of files that optimum wrote")
    parser.add_argument("--ort-model-path", default="", help="folder of an encoder and a decoder, or one file that gives words")
    parser.add_argument("-a", "--audio-path", required=True, help="a recording")
    parser.add_argument(
        "-d", "--device", default="cpu", choices=["cpu", "cuda"], help="cuda is refused: there are no GPUs here"
    )
    parser.add_argument("-id", "--device-id", type=int, default=0, help="accepted for compatibility")
    parser.add_argument("-w", "--warmup-runs", type=int, default=5, help="runs that are not counted")
    parser.add_argument("-n", "--num-runs", type=int, default=10, help="runs that are measured")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--sampling-rate", type=int, default=16000, help="samples of a second")
    parser.add_argument("--max-length", type=int, default=448, help="words at most")
    parser.add_argument("--min-length", type=int, default=0, help="words at least")
    for name, default in (("num-beams", 1), ("num-return-sequences", 1), ("no-repeat-ngram-size", 3)):
        parser.add_argument(f"--{name}", type=int, default=default, help="of the transformers package's search")
    for name in ("length-penalty", "repetition-penalty", "temperature"):
        parser.add_argument(f"--{name}", type=float, default=1.0, help="of the transformers package's search")
    parser.add_argument("--decoder-input-ids", default="[]", help="JSON: the words with which all texts begin")
    parser.add_argument("--logits-processor", type=int, default=1, help="an input of files that give words")
    parser.add_argument("--profile", action="store_true", help="write profiles, instead of measuring times")
    parser.add_argument("--pt-filter-by", default="self_cpu_time_total", help="what PyTorch's profile is sorted by")
    parser.add_argument("--pt-num-rows", type=int, default=1000, help="rows of PyTorch's profile")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--log-folder", default=os.path.join("."), help="where profiles are written")
    args = parser.parse_args(argv)
    args.decoder_input_ids = json.loads(args.decoder_input_ids)
    needed = {"hf-ort": "hf_ort_dir_path", "ort": "ort_model_path"}.get(args.benchmark_type)
    if needed and not getattr(args, needed):
        parser.error(f"{args.benchmark_type} needs --{needed.replace('_', '-')}")
    return args


# --- inputs


def load_audio(path: str, sampling_rate: int) -> np.ndarray:
    """The samples of a recording in -1…1: WAV files of 16 bits are read here, others by librosa."""
    if Path(path).suffix != ".wav":
        try:
            librosa = importlib.import_module("librosa")
        except ImportError as error:
            raise ImportError(f"{path} is no WAV file; librosa reads others: pip install librosa") from error
        return np.asarray(librosa.load(path, sr=sampling_rate)[0])
    with wave.open(path) as file:
        kind = file.getframerate(), file.getsampwidth()
        if kind != (sampling_rate, 2):
            raise ValueError(f"{path}: expected {sampling_rate} samples a second of 2 bytes, got {kind[0]} of {kind[1]}")
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, file.getnchannels())
    return np.asarray(samples.mean(axis=1, dtype=np.float64) / 2**15, np.float32)


def get_inputs(args: argparse.Namespace) -> dict[str, Any]:
    """What the model is called with: what it hears, and arguments of the search."""
    logger.info("Load audio: %s", args.audio_path)
    audio = load_audio(args.audio_path, args.sampling_rate)
    extractor = transformers_package().AutoFeatureExtractor.from_pretrained(args.model_name)
    start = time.perf_counter()
    features = extractor(audio, sampling_rate=args.sampling_rate, return_tensors="np").input_features
    logger.info("Feature extraction: %s s", time.perf_counter() - start)
    lengths = {"max_length": args.max_length, "min_length": args.min_length}
    if args.benchmark_type == "ort":
        return {"audio_features": features, **lengths, **{name: getattr(args, name) for name in SEARCH}}
    search = {name: getattr(args, name) for name in SEARCH if name != "temperature" or args.temperature != 1.0}
    start_words = {"decoder_input_ids": loaded_torch().tensor([args.decoder_input_ids])} if args.decoder_input_ids else {}
    return {"input_features": loaded_torch().from_numpy(features), "do_sample": False, **lengths, **search, **start_words}


# --- models


class SpeechFiles:
    """An encoder and a decoder that `convert_to_onnx` wrote: the likeliest word comes next, until the text ends."""

    def __init__(self, folder: str, precision: str, config: Any, options: SessionOptions):
        self.encoder, self.decoder = (self._open(folder, f"_{kind}", precision, options) for kind in ("encoder", "decoder"))
        self.config = config

    @staticmethod
    def _open(folder: str, kind: str, precision: str, options: SessionOptions) -> InferenceSession:
        """The file of that kind; of several the one that its name says to be of the precision."""
        paths = [path for path in sorted(Path(folder).glob("*.onnx")) if path.stem.partition(kind)[2] in ("", f"_{precision}")]
        found = [path for path in paths if kind in path.stem]
        found = [path for path in found if path.stem.endswith(precision)] or found
        if len(found) != 1:
            raise ValueError(
                f"{folder}: expected one file …{kind}_{precision}.onnx, got {[path.name for path in found] or 'none'}"
            )
        return InferenceSession(str(found[0]), options, providers=["CPUExecutionProvider"])

    def generate(self, features: np.ndarray, words: Sequence[int], max_length: int) -> np.ndarray:
        """The words of each text, with those that it begins with."""
        texts = np.tile(np.asarray(words or [self.config.decoder_start_token_id]), (len(features), 1))
        caches = {name.replace("present", "past"): value for name, value in self._encoded(features).items()}
        new = texts
        ended = np.zeros(len(texts), bool)
        while texts.shape[1] < min(max_length, self.config.max_target_positions) and not ended.all():
            outputs = self._step(new, caches)
            chosen = outputs["logits"][:, -1].argmax(axis=1)
            new = np.where(ended, self.config.pad_token_id, chosen)[:, None]
            ended |= new[:, 0] == self.config.eos_token_id
            texts = np.concatenate([texts, new], axis=1)
            caches |= {name.replace("present", "past"): value for name, value in outputs.items() if name.startswith("present")}
        return texts

    def _encoded(self, features: np.ndarray) -> dict[str, np.ndarray]:
        (source,) = self.encoder.get_inputs()
        names = [value.name for value in self.encoder.get_outputs()]
        feeds = {source.name: features.astype(TypeHelper.ort_type_to_numpy_type(source.type))}
        return dict(zip(names, self.encoder.run(names, feeds), strict=True))

    def _step(self, words: np.ndarray, caches: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        feeds = {}
        for value in self.decoder.get_inputs():
            kind = TypeHelper.ort_type_to_numpy_type(value.type)
            if value.name == "input_ids":
                feeds[value.name] = words.astype(kind)
            elif value.name in caches:
                feeds[value.name] = caches[value.name].astype(kind, copy=False)
            else:  # the first word has no others before it
                heads, size = self.config.decoder_attention_heads, self.config.d_model // self.config.decoder_attention_heads
                feeds[value.name] = np.zeros((len(words), heads, 0, size), kind)
        names = [value.name for value in self.decoder.get_outputs()]
        return dict(zip(names, self.decoder.run(names, feeds), strict=True))

    def end_profiling(self) -> str:
        """End the profiles; the decoder's is given."""
        self.encoder.end_profiling()
        return self.decoder.end_profiling()


def get_model(args: argparse.Namespace) -> Any:
    """What is measured: a module of PyTorch, a model of optimum, files, or the session of a file."""
    hub = transformers_package()
    start = time.perf_counter()
    if args.benchmark_type.startswith("hf-pt"):
        source = args.hf_pt_model_path or args.model_name
        model = hub.AutoModelForSpeechSeq2Seq.from_pretrained(source).eval()
        model = model.half() if args.precision == "fp16" else model
        model.forward = loaded_torch().compile(model.forward) if args.benchmark_type == "hf-pt-compile" else model.forward
    elif args.benchmark_type == "hf-ort":
        loader = optimum_package().ORTModelForSpeechSeq2Seq
        model = loader.from_pretrained(args.hf_ort_dir_path, provider="CPUExecutionProvider")
    else:
        options = SessionOptions()
        options.enable_profiling = args.profile
        options.profile_file_prefix = str(Path(args.log_folder, "ort_profile"))
        path = args.ort_model_path
        if Path(path).is_dir():
            model = SpeechFiles(path, args.precision, hub.AutoConfig.from_pretrained(args.model_name), options)
        else:
            model = InferenceSession(path, options, providers=["CPUExecutionProvider"])
    logger.info("Loaded model in %s s", time.perf_counter() - start)
    return model


# --- measurements


def time_fn(args: argparse.Namespace, fn: Callable[[Any], Any], inputs: Any) -> float:
    """The mean time of a call in seconds, which is in the log with calls a second."""
    run_times(lambda: fn(inputs), args.warmup_runs)
    latency = float(np.mean(run_times(lambda: fn(inputs), args.num_runs)))
    logger.info("Latency: %s s", latency)
    logger.info("Throughput: %s qps", 1 / latency)
    return latency


def profile_fn(args: argparse.Namespace, fn: Callable[[Any], Any], inputs: Any, inputs_type: str) -> str:
    """Write PyTorch's profile of a call as a table; gives its path."""
    profiler = importlib.import_module("torch.profiler")
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        fn(inputs)
    table = profile.key_averages(group_by_stack_n=5).table(sort_by=args.pt_filter_by, row_limit=args.pt_num_rows)
    path = Path(args.log_folder, f"{args.benchmark_type}_{inputs_type}_{time.strftime('%Y%m%d-%H%M%S')}.log")
    path.write_text(table, encoding="utf-8")
    return str(path)


def measure_fn(args: argparse.Namespace, fn: Callable[[Any], Any], inputs: Any) -> None:
    """Note in the log how busy the processor is in a call, and by how much memory grows."""
    start, busy = time.perf_counter(), time.process_time()
    fn(inputs)
    logger.info("CPU usage: %s%%", 100 * (time.process_time() - busy) / (time.perf_counter() - start))
    logger.info("CPU peak memory: %s MB", measure_memory(False, lambda: fn(inputs)))


def run_hf_inference(args: argparse.Namespace, inputs: Inputs, model: Any) -> np.ndarray | None:
    """Measure a model that generates as those of the transformers package do; gives its words."""

    def generate(given: Inputs) -> Any:
        with loaded_torch().no_grad():
            return model.generate(**given)

    logger.info("Evaluating %s...", type(model).__name__)
    if args.profile:
        logger.info("Profile: %s", profile_fn(args, generate, _as_model(inputs, model), "gen-and-dec"))
        return None
    inputs = _as_model(inputs, model)
    return _measured(args, lambda given: np.asarray(generate(given)), inputs)


def _as_model(inputs: Inputs, model: Any) -> Inputs:
    """The same with what is heard in the type of a module."""
    kind = getattr(model, "dtype", None)
    return inputs if kind is None else {**inputs, "input_features": inputs["input_features"].to(kind)}


def run_ort_inference(args: argparse.Namespace, inputs: Inputs, model: Any) -> np.ndarray | None:
    """Measure files, or a session; gives the words."""
    logger.info("Evaluating sessions...")
    if isinstance(model, SpeechFiles):
        if args.num_beams != 1 or args.num_return_sequences != 1:
            raise ValueError("files of an encoder and a decoder give the likeliest words: --num-beams 1, one sequence")

        def generate(given: Inputs) -> np.ndarray:
            return model.generate(given["audio_features"], args.decoder_input_ids, given["max_length"])
    else:
        feeds = _session_inputs(args, inputs, model)

        def generate(given: Inputs) -> np.ndarray:
            return np.asarray(model.run(None, feeds)[0])

    if args.profile:
        generate(inputs)
        logger.info("Profile: %s", model.end_profiling())
        return None
    return _measured(args, generate, inputs)


def _session_inputs(args: argparse.Namespace, inputs: Inputs, session: InferenceSession) -> dict[str, np.ndarray]:
    """The inputs of a file that gives words, by their names there."""
    words = np.asarray([args.decoder_input_ids])
    values = {**inputs, "input_features": inputs["audio_features"], "decoder_input_ids": words}
    values["logits_processor"] = args.logits_processor
    feeds = {}
    for value in session.get_inputs():
        if value.name not in values:
            raise ValueError(f"{args.ort_model_path} has an input {value.name}; known are {', '.join(values)}")
        array = np.asarray(values[value.name], TypeHelper.ort_type_to_numpy_type(value.type))
        feeds[value.name] = array if array.ndim == len(value.shape) else array.reshape([1] * len(value.shape))
    return feeds


def _measured(args: argparse.Namespace, generate: Callable[[Any], np.ndarray], inputs: Inputs) -> np.ndarray:
    """Note time, memory and what was said; gives the words."""
    words = generate(inputs)
    time_fn(args, generate, inputs)
    measure_fn(args, generate, inputs)
    logger.info("Generated token length: %d tokens", words.shape[-1])
    try:
        tokenizer = transformers_package().AutoTokenizer.from_pretrained(args.model_name)
    except Exception as error:
        logger.info("Transcription: no tokenizer of %s: %s", args.model_name, str(error).partition("\n")[0])
    else:
        logger.info(
            "Transcription: %s", tokenizer.batch_decode(words.reshape(-1, words.shape[-1]), skip_special_tokens=True)[0]
        )
    return words


def run_inference(args: argparse.Namespace, inputs: Inputs, model: Any) -> np.ndarray | None:
    """Measure as the benchmark's type asks."""
    run = run_ort_inference if args.benchmark_type == "ort" else run_hf_inference
    return run(args, inputs, model)


def main(argv: Sequence[str] | None = None) -> np.ndarray | None:
    """Measure; what is found is in the log. Gives the words."""
    args = parse_args(argv)
    setup_logger(args.verbose)
    refuse_gpu(args.device != "cpu")
    set_random_seed(args.seed)
    Path(args.log_folder).mkdir(parents=True, exist_ok=True)
    logger.info("%s", vars(args))
    inputs = get_inputs(args)
    return run_inference(args, inputs, get_model(args))


if __name__ == "__main__":
    main()
