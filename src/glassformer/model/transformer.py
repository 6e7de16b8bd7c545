"""The Transformer: one forward path for training, for decoding with a cache, and for looking inside.

`encode` reads a source, `decode` reads a target (with a memory, or alone), `forward` is both. Which tokens are
padding comes in as `is_real`, from their lengths; it is never guessed from an id.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glassformer.config.model import ModelConfig
from glassformer.config.run import Config, model_of
from glassformer.errors import DataError
from glassformer.model.attention import Mask, attention_mask
from glassformer.model.cache import Cache
from glassformer.model.dropout import Dropout
from glassformer.model.layer import Layer, make_norm
from glassformer.model.position import Learned, Rotary, Sinusoidal, empty_table, token_positions
from glassformer.model.tap import Tap


@dataclass(frozen=True, eq=False)
class Memory:
    """What the encoder made of a source: (B, S, D), and which of its rows are real, (B, S); None: all."""

    states: Tensor
    is_real: Tensor | None = None

    def select(self, rows: Tensor) -> "Memory":
        """Return these rows of the batch, in this order."""
        return Memory(self.states[rows], None if self.is_real is None else self.is_real[rows])


class Embedding(nn.Module):
    """√d_model E[token] + PE(position) (sections 3.4 and 3.5)."""

    def __init__(self, config: ModelConfig, vocabulary: int) -> None:
        super().__init__()
        self.tokens = empty_table(vocabulary, config.d_model)
        self.scale = math.sqrt(config.d_model) if config.embedding.scale else 1.0
        n_types = config.embedding.token_types
        self.token_types = empty_table(n_types, config.d_model) if n_types else None
        if n_types:
            self.token_type = Tap("B T D")
        self.position_table: Sinusoidal | Learned | None = None
        if config.positions.kind == "sinusoidal":
            self.position_table = Sinusoidal(config.positions, config.d_model)
        elif config.positions.size is not None:
            self.position_table = Learned(config.positions.size, config.d_model)
        self.norm = make_norm(config) if config.norm.embedding else None
        self.dropout = Dropout(config.dropout.residual)
        self.lookup, self.scaled, self.positioned = Tap("B T D"), Tap("B T D"), Tap("B T D")
        if self.position_table is not None:
            self.position = Tap("B T D")
        if self.norm is not None:
            self.normed = Tap("B T D")

    def forward(self, ids: Tensor, positions: Tensor, token_types: Tensor | None = None) -> Tensor:
        """(B, T) ids and their positions -> (B, T, D)."""
        x: Tensor = self.lookup(self.tokens(ids))  # (B, T, D)
        x = self.scaled(x * self.scale)
        if self.token_types is None and token_types is not None:
            raise DataError("token types were given, but the model has none (embedding.token_types=0)")
        if self.token_types is not None:
            x = x + self.token_type(self.token_types(torch.zeros_like(ids) if token_types is None else token_types))
        if self.position_table is not None:
            x = x + self.position(self.position_table(positions, x.dtype).expand_as(x))
        x = self.positioned(x)
        if self.norm is not None:
            x = self.normed(self.norm(x))
        dropped: Tensor = self.dropout(x)
        return dropped


class Stack(nn.Module):
    """An encoder or a decoder: embedding, N layers, and perhaps a last norm."""

    def __init__(self, config: ModelConfig, vocabulary: int | None, n_layers: int | None, *, cross: bool) -> None:
        super().__init__()
        self.embedding = Embedding(config, vocabulary or 0)  # the config has checked that it is set
        self.rotary = Rotary(config.positions, config.d_k) if config.positions.kind == "rotary" else None
        self.layers = nn.ModuleList(Layer(config, cross=cross) for _ in range(n_layers or 0))
        self.norm = make_norm(config) if config.final_norm else None
        self.output = Tap("B T D")

    def forward(
        self,
        ids: Tensor,
        positions: Tensor,
        mask: Mask,
        *,
        token_types: Tensor | None = None,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """(B, T) ids -> (B, T, D)."""
        x: Tensor = self.embedding(ids, positions, token_types)
        rotation = None if self.rotary is None else self.rotary(positions)
        for i, layer in enumerate(self.layers):
            x = layer(
                x,
                mask,
                rotation,
                memory=memory,
                memory_mask=memory_mask,
                self_past=None if cache is None else cache.self_attention[i],
                cross_past=None if cache is None else cache.cross_attention[i],
            )
        if self.norm is not None:
            x = self.norm(x)
        output: Tensor = self.output(x)
        return output


class Transformer(nn.Module):
    """An encoder–decoder, a decoder, or an encoder, as its configuration says.

    Shapes: B sequences, T target tokens, S source tokens, D = d_model, V = target vocabulary, C classes.
    """

    def __init__(self, config: ModelConfig | Config) -> None:
        super().__init__()
        config = model_of(config)
        self.config = config
        self.encoder: Stack | None = None
        self.decoder: Stack | None = None
        self.output: nn.Linear | None = None
        if config.has_encoder:
            self.encoder = Stack(config, config.source_vocabulary, config.n_encoder_layers, cross=False)
            self.memory = Tap("B S D")
        if config.has_decoder:
            self.decoder = Stack(config, config.target_vocabulary, config.n_decoder_layers, cross=config.has_encoder)
            vocabulary = self.decoder.embedding.tokens.num_embeddings
            self.output = nn.Linear(config.d_model, vocabulary, bias=config.output_bias)
            self.logits, self.probabilities = Tap("B T V"), Tap("B T V")
        elif config.classifier is not None:
            self.output = nn.Linear(config.d_model, config.classifier.classes or 0, bias=True)
            axes = "B T C" if config.classifier.pooling == "none" else "B C"
            self.pooled, self.logits, self.probabilities = Tap(axes.replace("C", "D")), Tap(axes), Tap(axes)
        self._initialise()
        self._tie()

    def forward(
        self,
        source: Tensor | None = None,
        target: Tensor | None = None,
        *,
        source_is_real: Tensor | None = None,
        target_is_real: Tensor | None = None,
        token_types: Tensor | None = None,
    ) -> Tensor:
        """Ids in, scores out.

        Args:
            source: (B, S) ids for the encoder; None for a decoder-only model.
            target: (B, T) ids that the decoder has so far, shifted right; None for an encoder-only model.
            source_is_real: (B, S), False at padding; None: nothing is padded.
            target_is_real: (B, T), the same for the target.
            token_types: (B, S), for models with such a table; None: all 0.

        Returns:
            Logits (B, T, V); of a classifier (B, C) or (B, S, C); of an encoder without one its states (B, S, D).

        """
        memory = None
        if self.encoder is not None:
            if source is None:
                raise DataError(f"a model of kind {self.config.kind!r} reads a source, but none was given")
            memory = self.encode(source, is_real=source_is_real, token_types=token_types)
        if self.decoder is None:
            assert memory is not None
            return self._classify(memory)
        if target is None:
            raise DataError(f"a model of kind {self.config.kind!r} reads a target, but none was given")
        return self.decode(target, memory, is_real=target_is_real)

    def encode(self, source: Tensor, *, is_real: Tensor | None = None, token_types: Tensor | None = None) -> Memory:
        """Read a source (B, S): every token sees every real token."""
        if self.encoder is None:
            raise DataError("a decoder-only model has no encoder; give it the text as the target")
        positions = token_positions(source.shape[1], is_real, first=self.config.positions.first, device=source.device)
        mask = attention_mask(source, source.shape[1], is_real, is_causal=False)
        states = self.encoder(source, positions, mask, token_types=token_types)  # (B, S, D)
        return Memory(self.memory(states), is_real)

    def decode(
        self,
        target: Tensor,
        memory: Memory | None = None,
        *,
        cache: Cache | None = None,
        is_real: Tensor | None = None,
        last: int | None = None,
    ) -> Tensor:
        """Read a target, each token seeing itself and those before it, and score what comes next.

        Args:
            target: (B, T) ids; with a cache, only those that it has not seen.
            memory: The encoder's output, for an encoder–decoder; a row of it may serve target rows side by side.
            cache: Keeps the keys and values for the next call, those of the memory from its first call on; the
                result is the same without it.
            is_real: (B, T), False at padding; None: nothing is padded.
            last: Score the last so many places only; None: all.

        Returns:
            Logits (B, T, V), or (B, last, V).

        """
        if self.decoder is None or self.output is None:
            raise DataError("an encoder-only model has no decoder: it cannot write")
        if (memory is None) == (self.encoder is not None):
            raise DataError("an encoder–decoder decodes with a memory (call encode first), a decoder alone without")
        if memory is not None and target.size(0) % memory.states.size(0):
            raise DataError(f"{len(target)} targets cannot share {len(memory.states)} memories evenly")
        n_tokens = target.shape[1]
        if cache is not None:
            is_real = cache.extend(target, is_real)  # (B, S): old tokens and new ones
            n_tokens += cache.length
        first = self.config.positions.first
        positions = token_positions(n_tokens, is_real, first=first, device=target.device)
        x = self.decoder(
            target,
            positions[:, n_tokens - target.shape[1] :],
            attention_mask(target, n_tokens, is_real, is_causal=True),
            memory=None if memory is None else memory.states,
            memory_mask=None
            if memory is None
            else attention_mask(
                target[: memory.states.size(0)], memory.states.shape[1], memory.is_real, is_causal=False
            ),
            cache=cache,
        )
        if cache is not None:
            cache.length, cache.is_real = n_tokens, is_real
        return self._score(self.output(x if last is None else x[:, -last:]))  # (B, T, V)

    @property
    def device(self) -> torch.device:
        """Where it works."""
        return next(self.parameters()).device

    def new_cache(self) -> Cache:
        """Return an empty cache for `decode`."""
        return Cache(self.config.n_decoder_layers or 0)

    def _classify(self, memory: Memory) -> Tensor:
        """Scores of an encoder-only model: its states, pooled as the configuration says, through the output."""
        states, is_real, classifier = memory.states, memory.is_real, self.config.classifier
        if classifier is None or self.output is None:
            return states
        is_real = states.new_ones(states.shape[:2], dtype=torch.bool) if is_real is None else is_real
        if classifier.pooling == "first":
            first = is_real.int().argmax(dim=1)  # (B,)
            states = states[torch.arange(first.shape[0], device=first.device), first]  # (B, D)
        elif classifier.pooling == "mean":
            kept = is_real[..., None].to(states.dtype)  # (B, S, 1)
            states = (states * kept).sum(dim=1) / kept.sum(dim=1).clamp(min=1)  # (B, D)
        return self._score(self.output(self.pooled(states)))

    def _score(self, logits: Tensor) -> Tensor:
        logits = self.logits(logits)
        if self.probabilities.watched:
            self.probabilities(logits.softmax(dim=-1))  # to be seen only: nothing goes on from here
        return logits.clone() if self.logits.watched else logits  # a search writes over what it gets

    def _tie(self) -> None:
        """Make one matrix of those that the configuration ties (section 3.4)."""
        tying = self.config.tying
        if self.decoder is not None and self.encoder is not None and tying in ("all", "source-target"):
            self.decoder.embedding.tokens.weight = self.encoder.embedding.tokens.weight
        if self.decoder is not None and self.output is not None and tying in ("all", "target-output"):
            self.output.weight = self.decoder.embedding.tokens.weight

    def _initialise(self) -> None:
        choice, d_model = self.config.initialisation, self.config.d_model
        if next(self.parameters()).is_meta:
            return  # shapes are wanted, not numbers
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                # √d_model times this has spread 1, the size of the positions added to it
                nn.init.normal_(module.weight, std=0.02 if choice == "normal" else d_model**-0.5)
            elif isinstance(module, nn.Linear) and choice != "pytorch":
                if choice == "xavier":
                    nn.init.xavier_uniform_(module.weight)
                else:
                    nn.init.normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
