"""Two architectures side by side, part by part, with what speaks for each change."""

from collections.abc import Callable
from dataclasses import dataclass

from glassformer.config.model import ModelConfig
from glassformer.config.run import Config
from glassformer.errors import ConfigError
from glassformer.inspect.count import count

Value = Callable[[Config], str]
Reason = Callable[[ModelConfig, ModelConfig], str]
SAME = "the same"
UNKNOWN = "not said"


@dataclass(frozen=True)
class Row:
    """One part of two models."""

    part: str
    first: str
    second: str
    why: str  # what speaks for the second one's way, where they differ


def compare(first: Config, second: Config) -> list[Row]:
    """Return the parts of two models, with a reason for each that differs."""
    rows = []
    for part, value, reason in PARTS:
        a, b = value(first), value(second)
        if UNKNOWN not in (a, b) or a != b:
            why = reason if isinstance(reason, str) else reason(first.model, second.model)
            rows.append(Row(part, a, b, SAME if a == b else " ".join(why.split())))
    return rows


def _shape(config: Config) -> str:
    model = config.model
    layers = [str(n) for n in (model.n_encoder_layers, model.n_decoder_layers) if n is not None]
    name = {"encoder-decoder": "encoder + decoder", "decoder": "decoder only", "encoder": "encoder only"}[model.kind]
    return f"{name}, {' + '.join(layers)} layers"


def _why_shape(a: ModelConfig, b: ModelConfig) -> str:
    if a.kind == b.kind:
        return "Depth: each layer reads what the one before it made, so more of them can do more steps, one at a time."
    return {
        "decoder": """Question and answer stand in one sequence that is only ever continued, so nothing is left for an
            encoder of its own to read.""",
        "encoder": "Nothing is written: the whole text is there from the start, and one look at all of it is enough.",
        "encoder-decoder": """The source is complete before a word is written: an encoder may read it in both
            directions, and each decoder layer can look at all of it.""",
    }[b.kind]


def _norm(config: Config) -> str:
    norm, kind = config.model.norm, {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}[config.model.norm.kind]
    where = "after each residual addition" if norm.placement == "post" else "before each sublayer"
    more = ", and a final one" * config.model.final_norm + ", and one on the embeddings" * norm.embedding
    return f"{kind} {where}{more}, ε {norm.eps:g}"


def _why_norm(a: ModelConfig, b: ModelConfig) -> str:
    words = []
    if a.norm.placement != b.norm.placement and b.norm.placement == "pre":
        words.append(
            """With the norm inside the branch, the residual path from the last layer to the first is nothing but
            additions: deep stacks learn without a careful warm-up. It needs one norm at its end."""
        )
    elif a.norm.placement != b.norm.placement:
        words.append("Every layer's output has one size, whatever its depth; deep stacks then need a careful warm-up.")
    if a.norm.kind != b.norm.kind:
        rms = b.norm.kind == "rmsnorm"
        words.append(
            "RMSNorm leaves out the mean: less work, and no worse." if rms else "LayerNorm takes the mean out."
        )
    return " ".join(words) or "Where the norms stand, and what keeps them from dividing by 0."


def _positions(config: Config) -> str:
    positions = config.model.positions
    text = {
        "sinusoidal": "sinusoids added to the embedding",
        "learned": f"a learned table of {positions.size} rows, added to the embedding",
        "rotary": f"rotary, base {positions.base:,.0f}, on queries and keys in every layer",
        "none": "none",
    }[positions.kind]
    if positions.kind == "sinusoidal" and positions.base != 10_000:
        text += f", base {positions.base:,.0f}"
    order = {"sinusoidal": positions.ladder, "rotary": positions.convention}.get(positions.kind, "interleaved")
    return text + f" ({order})" * (order != "interleaved") + f", the first is {positions.first}" * (positions.first > 0)


def _why_positions(a: ModelConfig, b: ModelConfig) -> str:
    if a.positions.kind == b.positions.kind:
        return (
            "The same idea: longer waves or tables reach further, and other orders of the numbers need other weights."
        )
    return {
        "rotary": """Turning queries and keys makes each score depend on how far apart two tokens are, in every layer,
            and adds nothing to what the tokens themselves say.""",
        "sinusoidal": "A fixed pattern needs no parameters and has no last position.",
        "learned": "The model finds its own pattern; past the table's end it has none.",
        "none": "A causal mask alone already tells a token how many stand before it.",
    }[b.positions.kind]


def _heads(config: Config) -> str:
    model = config.model
    if model.kv_heads == model.n_heads:
        return f"{model.n_heads}, each with its own keys and values, d_k {model.d_k}"
    return f"{model.n_heads} query heads on {model.kv_heads} of keys and values, d_k {model.d_k}"


def _why_heads(a: ModelConfig, b: ModelConfig) -> str:
    shared = b.n_heads // b.kv_heads
    if shared > 1:
        return f"""{shared} query heads share one of keys and values: what a decoder has to remember of each token is
            {shared} times smaller."""
    if a.kv_heads < a.n_heads:
        return "Each head may look for something of its own, at the cost of a larger cache."
    return "More heads look at more places at once; fewer have more numbers each."


def _ffn(config: Config) -> str:
    model = config.model
    name = {"relu": "ReLU", "gelu": "GELU", "gelu-tanh": "GELU (tanh)", "silu": "SiLU"}[model.ffn.activation]
    gated = "-gated" if model.ffn.gated else ""
    return f"{name}{gated}, {model.d_model} → {model.d_ff} → {model.d_model}"


def _why_ffn(a: ModelConfig, b: ModelConfig) -> str:
    if b.ffn.gated and not a.ffn.gated:
        return """One branch decides, number by number, how much of the other passes: better at one size in later
            experiments, so the hidden layer is made narrower to pay for the third matrix."""
    if a.ffn.gated and not b.ffn.gated:
        return "Two matrices in place of three, so the hidden layer can be wider."
    if a.ffn.activation != b.ffn.activation:
        return "A bend of another shape: a smooth one lets some gradient through where ReLU is flat."
    return "Here most of the parameters lie: a question of size."


def _biases(config: Config) -> str:
    text = {
        "all": "all linear layers (the paper prints them in the feed-forward network only)",
        "ffn": "feed-forward network only",
        "none": "none",
    }[config.model.biases]
    return text + ", and the output" * config.model.output_bias


def _embeddings(config: Config) -> str:
    model = config.model
    tied = {
        "all": "one matrix for source, target and output",
        "source-target": "one matrix for source and target",
        "target-output": "target and output are one matrix"
        if model.has_encoder
        else "the output is the input's matrix",
        "none": "a matrix of its own for each side and the output" if model.has_decoder else "one table",
    }[model.tying]
    return tied + (", × √d_model" if model.embedding.scale else ", not scaled")


def _why_embeddings(a: ModelConfig, b: ModelConfig) -> str:
    saved = (b.target_vocabulary or 0) * b.d_model
    tied = b.tying in ("all", "target-output") and saved
    words = [f"Tying saves {saved / 1e6:.1f} million parameters." if tied else "Untied, each side learns its own rows."]
    if a.embedding.scale and not b.embedding.scale:
        words.append(
            "The factor made up for small rows beside the positions that are added; here none are, or they learn."
        )
    return " ".join(words)


def _vocabulary(config: Config) -> str:
    model = config.model
    sizes = [f"{n:,}" for n in (model.source_vocabulary, model.target_vocabulary) if n is not None]
    shared = model.kind == "encoder-decoder" and model.tying in ("all", "source-target")
    text = f"{sizes[0]}, shared" if shared and sizes else " + ".join(sizes) if sizes else "what its data give"
    return _noted(text, config.notes.vocabulary)


def _context(config: Config) -> str:
    longest = config.model.longest
    text = UNKNOWN if longest is None else f"{longest:,} tokens, the end of its table"
    return config.notes.context or text


def _dropout(config: Config) -> str:
    dropout = config.model.dropout
    more = [f"{name} {rate:g}" for name, rate in (("attention", dropout.attention), ("ffn", dropout.ffn)) if rate]
    return ", ".join([f"{dropout.residual:g}", *more])


def _why_dropout(a: ModelConfig, b: ModelConfig) -> str:
    if b.dropout.residual < a.dropout.residual:
        return "Text that is seen once is not learnt by heart: there dropout only slows learning."
    return "Few examples that are seen often would be learnt by heart."


def _parameters(config: Config) -> str:
    try:
        text = f"{count(config).total:,}"
    except ConfigError:  # a vocabulary that its data decide
        text = UNKNOWN
    return _noted(text, config.notes.parameters)


def _task(config: Config) -> str:
    return config.notes.task or UNKNOWN


def _why_task(_: ModelConfig, b: ModelConfig) -> str:
    if b.kind == "decoder":
        return "The next token needs nobody to label it: any text is its own answer, and there is no end of text."
    return "Pairs and labels say what is wanted, and are dear to come by."


def _noted(text: str, note: str) -> str:
    return f"{text} ({note})" if note else text


PARTS: list[tuple[str, Value, str | Reason]] = [
    ("shape", _shape, _why_shape),
    (
        "width d_model",
        lambda config: str(config.model.d_model),
        "At one size, many thin layers or few wide ones: a matter of measuring, and thin ones have done well.",
    ),
    ("normalisation", _norm, _why_norm),
    ("positions", _positions, _why_positions),
    ("attention heads", _heads, _why_heads),
    ("feed-forward", _ffn, _why_ffn),
    (
        "biases",
        _biases,
        "Beside the matrices they add next to nothing; without them every layer is one product.",
    ),
    ("embeddings", _embeddings, _why_embeddings),
    (
        "vocabulary",
        _vocabulary,
        "More kinds of text need more tokens, and more tokens make shorter sequences, for a larger table.",
    ),
    (
        "context",
        _context,
        "As far as it was trained and tested; what the positions allow beyond is another question.",
    ),
    ("dropout", _dropout, _why_dropout),
    ("parameters", _parameters, "What all of the above comes to; tied matrices count once."),
    ("training task", _task, _why_task),
]
