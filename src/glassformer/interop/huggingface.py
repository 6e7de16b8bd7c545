"""Directories as Hugging Face writes them: config.json, model.safetensors, and the vocabulary."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from glassformer.config.files import validated
from glassformer.config.model import ModelConfig
from glassformer.config.run import Config, DecodeConfig
from glassformer.errors import CheckpointError
from glassformer.files import write_text, written_whole
from glassformer.interop import bert, llama, marian
from glassformer.interop.foreign import Foreign, Settings
from glassformer.interop.layout import Layout, give, take, turned
from glassformer.interop.vocabulary import marian_vocabularies, read_tokenizer
from glassformer.text.vocabularies import Vocabularies

KINDS = {name: kind for kind in (llama, bert, marian) for name in kind.ARCHITECTURES}
# fields of every model's config.json that say nothing of what a trained one computes
GENERAL = (
    "architectures", "model_type", "transformers_version", "torch_dtype", "dtype", "use_cache", "initializer_range",
    "bos_token_id", "eos_token_id", "pad_token_id", "is_encoder_decoder", "id2label", "label2id", "_name_or_path",
    "gradient_checkpointing", "return_dict", "output_past", "is_llama_config", "transformers.js_config",
    "tokenizer_class",
    "chunk_size_feed_forward", "problem_type", "num_labels", "_num_labels", "task_specific_params", "unsloth_version",
    "unsloth_fixed",
)  # fmt: skip


def is_directory(path: Path) -> bool:
    """Whether this is a directory of that kind."""
    return (path / "config.json").is_file()


def read(path: Path) -> Foreign:
    """Read a model with its vocabulary.

    Raises:
        CheckpointError: Something of it is missing, damaged, or not to be had here; the message names it.
        DataError: Its vocabulary cannot be used.

    """
    where = path / "config.json"
    settings = Settings(_json(where), str(where))
    names = settings.get("architectures") or []
    if not isinstance(names, list) or len(names) != 1 or names[0] not in KINDS:
        found = ", ".join(map(str, names)) or "unknown"
        raise CheckpointError(f"{where} is of a model of architecture {found}; we read {', '.join(KINDS)}")
    kind = KINDS[names[0]]
    settings.ignore(*GENERAL)
    fields = kind.read(settings)
    settings.check()
    model = validated({"model": fields}, f"{where}: ").model
    theirs, left_out = _weights(path, names[0])
    for name in [name for name in theirs if name.endswith("embed_positions.weight")]:
        marian.check_positions(theirs.pop(name).float(), model.d_model, f"{path}: {name}")
    if kind is marian and not theirs.get("final_logits_bias", torch.ones(1)).any():
        theirs.pop("final_logits_bias")  # nothing but zeros: no bias
        model = model.model_copy(update={"output_bias": False})
    if kind is marian and "final_logits_bias" in theirs:
        theirs["final_logits_bias"] = theirs["final_logits_bias"].flatten()  # (1, V)
    tensors = take(_only(kind.layout(model), model), theirs, model, str(path))
    labels = settings.get("id2label", {})
    classes = tuple(str(labels[key]) for key in sorted(labels, key=int)) if model.classifier is not None else ()
    if kind is marian:
        vocabularies, decode = marian_vocabularies(path, settings)
    else:
        vocabularies, decode = Vocabularies.one(read_tokenizer(path, settings), classes), DecodeConfig()
    config = Config(about=f"{names[0]} of {path.resolve().name}.", model=model, decode=decode)
    return Foreign(config, tensors, vocabularies, left_out, _chat_template(path))


def _only(layout: Layout, config: ModelConfig) -> Layout:
    """Return a layout without the bias that a model has not."""
    return {
        name: part for name, part in layout.items() if name != "output.bias" or config.output_bias or config.classifier
    }


def _weights(path: Path, architecture: str) -> tuple[dict[str, Tensor], list[str]]:
    """Return the tensors of a directory that are weights, and in words what was left out."""
    files = sorted(path.glob("*.safetensors"))
    if not files:
        pickles = [
            file.name for file in (path / "pytorch_model.bin", *path.glob("pytorch_model*.bin")) if file.is_file()
        ]
        if pickles:
            raise CheckpointError(
                f"{path} holds its weights as {pickles[0]}, a pickle, which could run a program; save it as "
                "safetensors where it comes from: model.save_pretrained(…)"
            )
        raise CheckpointError(f"{path} has no model.safetensors")
    theirs: dict[str, Tensor] = {}
    for file in files:
        theirs |= read_safetensors(file)
    left_out: list[str] = []
    if KINDS[architecture] is bert:
        theirs, left_out = bert.own_weights(theirs)
    constants = ("position_ids", "rotary_emb.inv_freq")
    copies = {"lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"}
    table = theirs.get("model.shared.weight", theirs.get("model.embed_tokens.weight"))
    kept = {}
    for name, tensor in theirs.items():
        twice = name in copies and table is not None and tensor.shape == table.shape and torch.equal(tensor, table)
        if not (name.endswith(constants) or twice):
            kept[name] = tensor
    return kept, left_out


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file.

    Raises:
        CheckpointError: It is damaged, or something else under this name.

    """
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a mapping
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is no safetensors file, or damaged ({error})") from error


def write(config: Config, ours: Mapping[str, Tensor], vocabularies: Vocabularies, out: Path) -> str:
    """Write a model in the layout of the architecture that it has; return its name.

    Raises:
        CheckpointError: There is none, or the files cannot be written.

    """
    model = config.model
    reasons = {kind: kind.refusal(model) for kind in (llama, marian, bert)}
    fitting = [kind for kind, reason in reasons.items() if reason is None]
    if not fitting:
        name = {"decoder": llama, "encoder-decoder": marian, "encoder": bert}[model.kind]
        raise CheckpointError(
            f"Hugging Face has no equal of this model that we know: {name.ARCHITECTURES[0]} needs {reasons[name]}"
        )
    (kind,) = fitting
    theirs = give(_only(kind.layout(model), model), turned(ours, model, "halves"))
    fields = kind.write(model)
    target = vocabularies.target
    if kind is marian:
        bias = theirs.get("final_logits_bias", torch.zeros(model.target_vocabulary or 0))
        theirs["final_logits_bias"] = bias[None]
        fields |= {
            "decoder_start_token_id": target.start_id,
            "pad_token_id": target.start_id,
            "forced_eos_token_id": None,
        }
    if model.classifier is not None:
        fields["id2label"] = {str(i): name for i, name in enumerate(vocabularies.classes)}
        fields["label2id"] = {name: i for i, name in enumerate(vocabularies.classes)}
    fields |= {"bos_token_id": target.start_id, "eos_token_id": target.end_id}
    out.mkdir(parents=True, exist_ok=True)
    with written_whole(out / "model.safetensors") as temporary:
        save_file({name: tensor.contiguous().clone() for name, tensor in theirs.items()}, temporary, {"format": "pt"})
    vocabularies.save(out)
    write_text(out / "config.json", json.dumps(fields, indent=2, ensure_ascii=False) + "\n")
    return str(fields["architectures"][0])


def _chat_template(path: Path) -> str | None:
    """Return how messages become a text: a file of its own, or in tokenizer_config.json."""
    if (path / "chat_template.jinja").is_file():
        return (path / "chat_template.jinja").read_text(encoding="utf-8")
    try:
        found = _json(path / "tokenizer_config.json").get("chat_template")
    except CheckpointError:
        return None
    return found if isinstance(found, str) else None


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} holds no table of fields")
    return found
