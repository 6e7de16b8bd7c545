"""Small models for the tests of searching: fixed, random, and far from undecided."""

import math
from typing import Any

import numpy as np
import torch

from glassformer.config import DecodeConfig, ModelConfig
from glassformer.decode.hypothesis import Hypothesis, Prompt
from glassformer.decode.rules import Rules
from glassformer.decode.search import search
from glassformer.model.transformer import Transformer
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.vocabularies import Vocabularies
from glassformer.writer import Writer
from tests.agreement.variants import build
from tests.reference.beam import Next, cached

START, END = 1, 2


def small(kind: str = "encoder-decoder", vocabulary: int = 5, **changes: Any) -> Transformer:
    """A model of a few numbers, in float64, so that no two ways of computing come apart."""
    values: dict[str, Any] = {"kind": kind, "d_model": 16, "d_ff": 24, "n_heads": 2, "tying": "none"}
    if kind != "decoder":
        values |= {"source_vocabulary": vocabulary, "n_encoder_layers": 1}
    if kind != "encoder":
        values |= {"target_vocabulary": vocabulary, "n_decoder_layers": 2}
    return build(ModelConfig.model_validate(values | changes)).double()


def following(model: Transformer, source: list[int] | None, read: list[int] | None = None) -> Next:
    """What comes after tokens, computed anew each time: no cache, no batch."""

    def ask(ids: tuple[int, ...]) -> np.ndarray:
        with torch.inference_mode():
            target = torch.tensor([[*(read or [START]), *ids]])
            logits = model(None if source is None else torch.tensor([source]), target)
        return logits[0, -1].log_softmax(-1).numpy()

    return cached(ask)


def find(
    model: Transformer, prompts: list[Prompt] | Prompt, *, rules: Rules | None = None, **settings: Any
) -> list[list[Hypothesis]]:
    config = DecodeConfig(**settings)
    several = prompts if isinstance(prompts, list) else [prompts]
    return search([model], several, rules or Rules(END), config)


def whole(hypothesis: Hypothesis) -> tuple[int, ...]:
    """The tokens, with the end token where there was one."""
    return (*hypothesis.ids, END) if hypothesis.stopped == "end" else tuple(hypothesis.ids)


def bigram(table: dict[str, dict[str, float]], kind: str = "decoder") -> Transformer:
    """A model whose next token depends on the last one alone, with the probabilities of a table.

    Its layers add nothing; the output matrix holds the logarithms. Tokens: LETTERS.
    """
    n = len(LETTERS)
    model = small(
        kind, n, d_model=n, n_heads=1, norm={"placement": "pre", "final": False},
        positions={"kind": "none"}, embedding={"scale": False}, biases="none",
    )  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        assert model.decoder is not None
        assert model.output is not None
        model.decoder.embedding.tokens.weight.copy_(torch.eye(n))
        model.output.weight.fill_(-math.inf)
        for before, row in table.items():
            assert math.isclose(sum(row.values()), 1)
            for after, probability in row.items():
                model.output.weight[LETTERS.index(after), LETTERS.index(before)] = math.log(probability)
        model.output.weight.clamp_(min=-1e4)  # 0 · -inf would be no number
    return model


LETTERS = ["<pad>", "<s>", "</s>", "a", "b", "c"]
CHAIN = {
    "<s>": {"a": 0.5, "b": 0.4, "c": 0.1},
    "a": {"b": 0.4, "c": 0.3, "</s>": 0.2, "a": 0.1},
    "b": {"</s>": 0.45, "a": 0.3, "c": 0.2, "b": 0.05},
    "c": {"a": 0.6, "b": 0.3, "</s>": 0.1},
}
ROUND = {  # greedily a b a b a b ... without end
    "<s>": {"a": 0.9, "</s>": 0.1},
    "a": {"b": 0.7, "c": 0.2, "</s>": 0.1},
    "b": {"a": 0.6, "b": 0.3, "</s>": 0.1},
    "c": {"c": 0.6, "a": 0.3, "</s>": 0.1},
}

BOUND = {  # the longest sentence is the best one once the penalty is strong: a b c </s> has 0.4
    "<s>": {"</s>": 0.6, "a": 0.4},
    "a": {"b": 1.0},
    "b": {"c": 1.0},
    "c": {"</s>": 1.0},
}

HASTY = {"<s>": {"</s>": 0.46, "a": 0.54}, "a": {"</s>": 1.0}, "b": {"</s>": 1.0}, "c": {"</s>": 1.0}}


def written_by(tables: list[dict[str, dict[str, float]]], text: str = "c", **settings: Any) -> list[str]:
    """What models of these tables write together, each result as "a b </s>: p"; encoder–decoders, source `text`."""
    prefix = settings.pop("prefix", "")
    words = Vocabularies.one(Tokenizer.letters("abc"))
    writer = Writer([bigram(table, "encoder-decoder") for table in tables], words, DecodeConfig(**settings))
    (results,) = writer.write([writer.prompt(text, prefix=prefix, number=1)])
    return [
        " ".join([*written.tokens, *["</s>"] * (written.stopped == "end")])
        + f": {math.exp(written.log_probability):.4f}"
        for written in results
    ]
