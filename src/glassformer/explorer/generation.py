"""One word at a time, as data: each step of writing with what led to its choice, and the search as a tree."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Tensor

from glassformer.decode.beam import Record
from glassformer.decode.greedy import most_likely, sampler, steps
from glassformer.decode.hypothesis import Prompt
from glassformer.decode.sample import Sampler
from glassformer.decode.search import search
from glassformer.decode.state import begin
from glassformer.errors import DataError
from glassformer.explorer.api import ALL_NAMES, Request, spelt, tokens
from glassformer.explorer.shelf import Shelved
from glassformer.inspect.trace import Traced, watch
from glassformer.model.transformer import Transformer
from glassformer.writer import Writer

MOST_STEPS = 200
CAPPED = {"beam_size": 32, "n_best": 32, "max_length": 500, "extra_length": 500}
SHOWN = 50  # of a large vocabulary: the most likely tokens


def generation(shelved: Shelved, request: Request, decode: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Write from a text and return every step, or with a beam the search.

    Args:
        shelved: The run.
        request: Its text and snapshot; a target is of no use here.
        decode: Fields of the configuration's [decode] to change.

    Raises:
        ConfigError: No such field, or a value that it cannot have.
        DataError: The text is blank or cannot be read.
        DecodingError: The model does not write.

    """
    wanted = dict(decode or {})
    for field in CAPPED:
        if isinstance(wanted.get(field), int) and wanted[field] > CAPPED[field]:
            raise DataError(f"{field}={wanted[field]} is more than the explorer shows: {CAPPED[field]}")
    with shelved.lock:
        return _written(shelved, request, wanted)


def _written(shelved: Shelved, request: Request, decode: Mapping[str, Any]) -> dict[str, Any]:
    writer = shelved.run.writer(decode)
    writer.models = [shelved.model(request.snapshot)]
    prompt = writer.prompt(request.source, number=1)
    if prompt.is_blank:
        raise DataError("the text is blank: there is nothing to read")
    given = {
        "source": None if prompt.source is None else tokens(shelved.run.vocabularies.source, tuple(prompt.source)),
        "read": tokens(writer.tokenizer, tuple(prompt.read)),
        "decode": writer.config.model_dump(mode="json", exclude_none=True),
        "limit": prompt.limit,
    }
    return given | (
        _search(writer, prompt) if writer.config.beam_size > 1 else _one_way(shelved.run.model, writer, prompt)
    )


def _one_way(model: Transformer, writer: Writer, prompt: Prompt) -> dict[str, Any]:
    last = f"decoder.layers.{(model.config.n_decoder_layers or 0) - 1}"
    looks = {"target": f"{last}.self_attention.weights"}
    if model.config.has_encoder:
        looks["source"] = f"{last}.cross_attention.weights"
    choose = sampler([prompt], writer.config) if writer.config.sample else most_likely
    written: list[dict[str, Any]] = []
    ids: list[int] = []
    with watch(model, "decoder.output", "logits", *looks.values()) as seen:
        for step in steps(begin(writer.models, [prompt], writer.rules), [prompt], writer.rules, choose):
            token = step.tokens[0]
            row = {
                "so_far": len(prompt.read) + len(ids),
                "last_row": seen["decoder.output"].values[0, -1].tolist(),
                "looked": {side: _last_row(seen[name]) for side, name in looks.items()},
                "chosen": {**tokens(writer.tokenizer, (token,))[0], "probability": math.exp(step.chosen[0])},
                **_candidates(writer, seen["logits"].values[0, -1], step.log_probabilities[0], choose),
            }  # fmt: skip
            written.append(row)
            ids.append(token)
            if len(written) == MOST_STEPS:
                break
    ended = bool(ids) and ids[-1] == writer.tokenizer.end_id
    stopped = "end" if ended else "limit" if len(ids) >= prompt.limit else "page"
    return {"steps": written, "written": tokens(writer.tokenizer, tuple(ids)), "stopped": stopped,
            "text": writer.tokenizer.decode(ids)}  # fmt: skip


def _candidates(writer: Writer, logits: Tensor, log_probabilities: Tensor, choose: Any) -> dict[str, Any]:
    """Return each token's way from its logit to its chance of being drawn; of a large vocabulary the most likely."""
    temperature = writer.config.temperature
    if isinstance(choose, Sampler):
        chances, order = choose.distribution(log_probabilities.cpu()[None])
        drawn = torch.zeros_like(chances[0]).scatter(0, order[0], chances[0])
    else:
        drawn = torch.zeros_like(log_probabilities, dtype=torch.double)
        drawn[log_probabilities.argmax()] = 1.0
    probabilities = log_probabilities.double().exp()
    n = len(probabilities)
    shown = torch.arange(n) if n <= ALL_NAMES else probabilities.topk(SHOWN).indices
    tempered = (log_probabilities.double() / temperature).softmax(dim=-1)
    total = drawn.sum()
    rows = [
        {
            **tokens(writer.tokenizer, (i,))[0],
            "logit": float(logits[i]),
            "tempered_logit": float(logits[i]) / temperature,
            "probability": float(probabilities[i]),
            "tempered": float(tempered[i]),
            "kept": bool(drawn[i] > 0),
            "chance": float(drawn[i] / total),
        }
        for i in shown.tolist()
    ]
    return {
        "candidates": rows,
        "not_shown": n - len(rows),
        "rest": float(1 - probabilities[shown].sum()) if n > len(rows) else 0.0,
    }


def _search(writer: Writer, prompt: Prompt) -> dict[str, Any]:
    record = Record()
    (found,) = search(writer.models, [prompt], writer.rules, writer.config, records=[record])
    name = partial(spelt, writer.tokenizer)
    return {
        "search": [[{**asdict(one), "name": name([one.token])[0]} for one in step] for step in record.steps],
        "stopped": record.stopped,
        "results": [
            {**asdict(one), "tokens": name(one.ids), "text": writer.tokenizer.decode(one.ids)} for one in found
        ],
    }


def _last_row(weights: Traced) -> list[float]:
    """(B, H, T, S) -> where the last row looked, the mean of its heads."""
    return weights.values[0, :, -1].mean(dim=0).tolist()
