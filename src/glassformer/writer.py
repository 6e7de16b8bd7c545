"""Texts in, texts out: what a trained model writes and scores, step by step if wanted, and where it looks."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import torch
from torch import Tensor

from glassformer.config.run import Config, DecodeConfig
from glassformer.data.batch import pad
from glassformer.decode.beam import Record
from glassformer.decode.greedy import Step, most_likely, sampler, steps
from glassformer.decode.hypothesis import Hypothesis, Prompt, length_penalty
from glassformer.decode.parallel import two_at_once
from glassformer.decode.rules import Rules
from glassformer.decode.score import perplexity, score
from glassformer.decode.search import search
from glassformer.decode.state import Model, begin
from glassformer.errors import DataError, DecodingError
from glassformer.inspect.trace import watch
from glassformer.model.transformer import Transformer
from glassformer.text.chat import chat_ids
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.vocabularies import Vocabularies

Result = TypeVar("Result")
EXTRA_LENGTH = 50  # section 6.1: at most source length + 50 tokens


@dataclass(frozen=True)
class Written:
    """One result for one text."""

    text: str
    tokens: list[str]
    ids: list[int]
    log_probability: float  # of all tokens, the end token included
    score: float  # log-probability / length penalty
    stopped: Literal["end", "limit", "empty"]


@dataclass(frozen=True)
class TokenChance:
    """A token that could come next."""

    token: str
    probability: float


@dataclass(frozen=True)
class WrittenToken:
    """One step of decoding: what the decoder had, what was chosen, and the most likely tokens."""

    so_far: list[str]  # tokens that the decoder read
    chosen: TokenChance
    candidates: list[TokenChance]  # the most likely ones


@dataclass(frozen=True)
class Scored:
    """What a model gives to a text."""

    tokens: list[str]
    log_probabilities: list[float]  # of each token
    log_probability: float  # their sum
    score: float  # log-probability / length penalty

    @property
    def perplexity(self) -> float:
        """exp of the mean of minus the log-probability of a token."""
        n = len(self.log_probabilities)
        return perplexity(self.log_probability, n) if n else 1.0


def read(
    text: str, tokenizer: Tokenizer, longest: int | None, *, truncate: bool = False, framed: bool = True
) -> tuple[list[int], int]:
    """Return the ids of a text, none for a blank one, and how many were cut off at the end of the learned positions.

    `framed`: between the tokens of the vocabulary's template, as an encoder reads it.

    Raises:
        DataError: The vocabulary cannot read it; or it is too long, and may not be cut.

    """
    ids = tokenizer.encode(text) if text.strip() else []
    n_cut, frame = 0, len(tokenizer.framed([])) if framed else 0
    if longest is not None and len(ids) + frame > longest:
        if not truncate:
            n = len(ids) + frame
            raise DataError(f"the text has {n} tokens, but the model's learned positions end after {longest}")
        ids, n_cut = ids[: longest - frame], len(ids) + frame - longest
    return tokenizer.framed(ids) if framed and ids else ids, n_cut


def longest_source(configs: Sequence[Config], *, truncate: bool = False) -> tuple[int | None, bool]:
    """Return the most tokens that models read together, and whether longer texts are cut: as they were to learn."""
    longest = None
    for config in configs:
        data = config.data
        truncate = truncate or (data is not None and data.truncate)
        ends = (config.model.longest, data.max_length if data is not None and data.truncate else None)
        longest = min((end for end in (longest, *ends) if end is not None), default=None)
    return longest, truncate


def _named(what: str, function: Callable[[str], Result], text: str) -> Result:
    """Call the function on a text, and say in errors what the text is."""
    try:
        return function(text)
    except DataError as error:
        raise DataError(f"{what}: {error}") from None


class Writer:
    """Writes with one model, or with several that vote, in a way that is settled once."""

    def __init__(
        self,
        models: Sequence[Model],
        vocabularies: Vocabularies,
        config: DecodeConfig,
        *,
        batch_size: int = 64,
        truncate: bool = False,
        longest_source: int | None = None,
        with_start: bool = True,
        chat: bool = False,
    ) -> None:
        """Take the way to write.

        Args:
            models: In eval mode, of one kind and one vocabulary. The mean of their probabilities counts.
            vocabularies: Of both sides.
            config: The way.
            batch_size: How many texts are written at once.
            truncate: Cut sources that are longer than learned positions, instead of refusing them.
            longest_source: The most tokens of a source, where it is fewer than the learned positions are.
            with_start: Whether a start token stands first, if the vocabulary has one.
            chat: Whether each text is a message to a model that answers, by its chat template.

        Raises:
            DecodingError: The models do not write, have no source that could be cut, or no chat template.
            DataError: The vocabulary lacks a token that is needed.

        """
        tokenizer = vocabularies.target
        self.models, self.tokenizer, self.source_tokenizer, self.config = models, tokenizer, vocabularies.source, config
        self.batch_size, self.truncate = batch_size, truncate
        self.has_source = models[0].config.has_encoder
        if not all(model.config.has_decoder for model in models):
            raise DecodingError("an encoder-only model does not write: it classifies")
        if batch_size < 1:
            raise DecodingError(f"batch_size={batch_size} is not right: the smallest is 1")
        if truncate and not self.has_source:
            raise DecodingError("truncate cuts sources, but a decoder alone has none")
        if self.has_source and tokenizer.start_id is None:
            raise DataError("the vocabulary has no start token, which an encoder–decoder reads first")
        if chat and (self.has_source or vocabularies.chat_template is None):
            raise DecodingError("this model has no chat template: it goes on from texts, and answers no messages")
        self._template = vocabularies.chat_template if chat else None
        self.rules = Rules(
            tokenizer.end_id,
            forbidden=[_named("a forbidden token (--forbid)", tokenizer.id_of, token) for token in config.forbidden],
            min_length=config.min_length,
            no_repeat_ngram=config.no_repeat_ngram,
        )
        self._longest = min((m.config.longest for m in models if m.config.longest is not None), default=None)
        self._longest_source = self._longest if longest_source is None else longest_source
        self._start = [] if tokenizer.start_id is None or not with_start else [tokenizer.start_id]

    def prompt(self, text: str, *, prefix: str = "", number: int = 0) -> Prompt:
        """Turn a text into what a search starts from: a source, or what a decoder alone goes on from.

        Raises:
            DataError: The vocabulary cannot read it, or it is too long.
            DecodingError: The rules do not allow the prefix, or the length limit leaves no room after it.

        """
        start, room = self._start, self._longest_source
        if not self.has_source and room is not None:
            room -= len(start)
        truncate = self.truncate and self.has_source
        ids, n_cut = read(text, self.source_tokenizer, room, truncate=truncate, framed=self.has_source)
        if self._template is not None and ids:  # a template says where a start token stands
            start, ids = [], chat_ids(self._template, self.tokenizer, [{"role": "user", "content": text}])
            if self._longest is not None and len(ids) > self._longest:
                raise DataError(
                    f"the message makes {len(ids)} tokens, but the learned positions end after {self._longest}"
                )
        begun = _named("the prefix", self.tokenizer.encode, prefix)
        self.rules.check(begun, self.tokenizer.tokens(begun))
        first = start if self.has_source else [*start, *ids] if ids else []
        limit = self.config.max_length
        if limit is None:
            extra = EXTRA_LENGTH if self.config.extra_length is None else self.config.extra_length
            limit = extra + (len(ids) if self.has_source else 0)
        if self._longest is not None:  # the last token that is written is not read
            limit = min(limit, self._longest - len(first) + 1)
        n_unknown = sum(i == self.source_tokenizer.unknown_id for i in ids)
        prompt = Prompt(ids if self.has_source else None, first, limit, begun, number, n_cut, n_unknown)
        if not prompt.is_blank:
            prompt.check()
        return prompt

    def write(self, prompts: Sequence[Prompt]) -> list[list[Written]]:
        """Write from each prompt; for each, its results in order, the best score first.

        Prompts of like length are written together; the order of the results is that of the prompts.
        """
        groups = list(self._groups(prompts))

        def write_group(group: Sequence[int]) -> list[list[Hypothesis]]:
            return search(self.models, [prompts[i] for i in group], self.rules, self.config)

        results: list[list[Written]] = [[] for _ in prompts]
        device = self.models[0].device
        for group, found in zip(groups, two_at_once(write_group, groups, device), strict=True):
            for i, hypotheses in zip(group, found, strict=True):
                results[i] = [self._written(hypothesis) for hypothesis in hypotheses]
        return results

    def stream(self, prompt: Prompt, *, with_prompt: bool = False) -> "Stream":
        """Write from one prompt and give the text piece by piece, as it comes; before it what was read, if asked for.

        Raises:
            DecodingError: With a beam, or several results: nothing is settled before the end.

        """
        if self.config.beam_size > 1 or self.config.n_best > 1:
            raise DecodingError(
                "a beam, or several results, settle their text only at the end: to stream, set beam_size=1 and n_best=1"
            )
        return Stream(self, prompt, [*(prompt.read if with_prompt else ()), *prompt.prefix])

    def steps(self, prompt: Prompt, *, top: int = 3) -> list[WrittenToken]:
        """Write from one prompt and show each step: what was read, what was chosen, the `top` most likely tokens."""
        if prompt.is_blank:
            raise DataError("the text is blank: there is nothing to read")
        if self.config.beam_size > 1:
            raise DecodingError("steps go one way: set beam_size=1, or look at the record of the search")
        if self.config.n_best > 1:
            raise DecodingError(f"steps show one result, not the {self.config.n_best} of n_best")
        names, written = self.tokenizer.tokens, []
        so_far = [*prompt.read, *prompt.prefix]
        for step in self._steps(prompt):
            probabilities = step.log_probabilities[0].exp()
            best, ids = probabilities.topk(min(top, len(probabilities)))
            candidates = [TokenChance(*pair) for pair in zip(names(ids.tolist()), best.tolist(), strict=True)]
            token = step.tokens[0]
            chosen = TokenChance(names([token])[0], float(probabilities[token]))
            written.append(WrittenToken(names(so_far), chosen, candidates))
            so_far.append(token)
        return written

    def record(self, prompt: Prompt) -> tuple[Record, list[Written]]:
        """Search with a beam from one prompt; return what the search did, step by step, and its results."""
        if self.config.beam_size < 2:
            raise DecodingError("a record is kept of a beam: set beam_size to 2 or more")
        record = Record()
        found = search(self.models, [prompt], self.rules, self.config, records=[record])[0]
        return record, [self._written(hypothesis) for hypothesis in found]

    def attention(self, prompts: Sequence[Prompt], ids: Sequence[Sequence[int]]) -> list[Tensor]:
        """Return where the decoder looks while it writes these ids: for each prompt (T, S), a row for each token.

        A row's shares sum to 1. It is the cross-attention of the last layer, the mean of its heads and of the models.
        A blank text has no rows.
        """
        results = [torch.zeros(0, 0) for _ in prompts]
        for i, shares in self._attention(prompts, ids):
            results[i] = shares
        return results

    def alignments(self, prompts: Sequence[Prompt], ids: Sequence[Sequence[int]]) -> list[list[tuple[int, int]]]:
        """Return (place in the source, place in the target), from 0, for each token: where it looks most."""
        results: list[list[tuple[int, int]]] = [[] for _ in prompts]
        for i, shares in self._attention(prompts, ids):
            results[i] = [(place, row) for row, place in enumerate(shares.argmax(dim=-1).tolist())]
        return results

    @torch.inference_mode()
    def _attention(self, prompts: Sequence[Prompt], ids: Sequence[Sequence[int]]) -> Iterator[tuple[int, Tensor]]:
        if not self.has_source:
            raise DecodingError("a decoder alone has no source to be aligned with")
        filled = [i for i, prompt in enumerate(prompts) if not prompt.is_blank and ids[i]]
        for group in self._groups([prompts[i] for i in filled]):
            rows = [filled[k] for k in group]
            source, source_is_real = pad([prompts[i].source or () for i in rows])
            target, _ = pad([[*prompts[i].read, *ids[i][:-1]] for i in rows])
            weights = torch.zeros(len(rows), target.shape[1], source.shape[1])  # (B, T, S)
            for model in self.models:
                if not isinstance(model, Transformer):
                    raise DecodingError("this engine gives texts and scores only: to see attention, use the run itself")
                device = model.device
                name = f"decoder.layers.{(model.config.n_decoder_layers or 0) - 1}.cross_attention.weights"
                is_real = None if source_is_real is None else source_is_real.to(device)
                with watch(model, name) as seen:
                    model.decode(target.to(device), model.encode(source.to(device), is_real=is_real), last=1)
                weights += seen[name].values.mean(dim=1).cpu().float() / len(self.models)
            for k, i in enumerate(rows):
                yield i, weights[k, : len(ids[i]), : len(prompts[i].source or ())]

    def pair(self, before: str | None, text: str, *, ended: bool = True, number: int = 0) -> tuple[Prompt, list[int]]:
        """Turn a text and what was read before it into what `score` takes; no ids where one of them is blank.

        Args:
            before: The source, or for a decoder alone the text that it goes on from. None, for a decoder alone: it goes
                on from nothing; without a start token it reads the text's first token, which is then not scored.
            text: The text to score.
            ended: Whether the end token is scored after it.
            number: Of the line.

        Raises:
            DataError: The vocabulary cannot read it, or it is too long.

        """
        prompt = _named("the source", lambda one: self.prompt(one, number=number), before or "")
        if not text.strip() or (prompt.is_blank and before is not None):
            return prompt, []
        ids = _named("the target", self.tokenizer.encode, text) if self.has_source else self.tokenizer.encode(text)
        if before is None:
            prompt, ids = replace(prompt, read=self._start or ids[:1]), ids if self._start else ids[1:]
        ids = [*ids, self.tokenizer.end_id] if ended and ids else ids
        n_read = len(prompt.read) + len(ids) - 1  # the last token is not read
        if self._longest is not None and n_read > self._longest:
            raise DataError(
                f"the text has {n_read} tokens, but the model's learned positions end after {self._longest}"
            )
        return prompt, ids

    def score(self, prompts: Sequence[Prompt], targets: Sequence[Sequence[int]]) -> list[Scored]:
        """Return what the models give to these ids after these prompts, by the rules and penalty of the settings.

        The end token counts where it is among the ids. No ids have no tokens and a log-probability of 0.
        """
        results = []
        found = score(self.models, prompts, targets, self.rules, batch_size=self.batch_size)
        for target, values in zip(targets, found, strict=True):
            total = float(sum(values))
            penalty = length_penalty(self.config, len(target)) if target else 1.0
            results.append(Scored(self.tokenizer.tokens(target), values, total, total / penalty))
        return results

    def _steps(self, prompt: Prompt) -> Iterator[Step]:
        state = begin(self.models, [prompt], self.rules)
        choose = sampler([prompt], self.config) if self.config.sample else most_likely
        return steps(state, [prompt], self.rules, choose)

    def _groups(self, prompts: Sequence[Prompt]) -> Iterator[list[int]]:
        """Yield the places of prompts that are written together."""
        order = sorted(range(len(prompts)), key=lambda i: (len(prompts[i].source or ()), len(prompts[i].read)))
        for start in range(0, len(order), self.batch_size):
            yield order[start : start + self.batch_size]

    def _written(self, found: Hypothesis) -> Written:
        text, tokens = self.tokenizer.decode(found.ids), self.tokenizer.tokens(found.ids)
        return Written(text, tokens, found.ids, found.log_probability, found.score, found.stopped)


class Stream:
    """The pieces of a text while it is written; after the last one, `stopped` says why it was the last."""

    def __init__(self, writer: Writer, prompt: Prompt, begun: list[int]) -> None:
        self._writer, self._prompt, self._ids = writer, prompt, begun
        self.stopped: Literal["end", "limit", "empty"] = "empty"

    def __iter__(self) -> Iterator[str]:
        tokenizer, shown = self._writer.tokenizer, ""
        for step in [] if self._prompt.is_blank else self._writer._steps(self._prompt):
            self.stopped = "end" if step.tokens[0] == tokenizer.end_id else "limit"
            self._ids += step.tokens if self.stopped == "limit" else []
            text = tokenizer.decode(self._ids)
            if len(text) > len(shown) and not text.endswith("\ufffd"):  # perhaps half of a character
                yield text[len(shown) :]
                shown = text
        rest = tokenizer.decode(self._ids)[len(shown) :]
        if rest:
            yield rest
