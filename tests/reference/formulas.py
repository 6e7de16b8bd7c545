"""The Transformer of "Attention Is All You Need" in NumPy: the oracle of the tests, and a text to read.

It knows nothing of the package but the names of the parameters. Everything is float64 and one sequence at a time:
no batch, no padding, no cache, no dropout. Sections and equations are the paper's (arXiv:1706.03762).
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Weights = dict[str, Array]


# --- Section 3.5: positional encoding


def positional_encoding(n_positions: int, d_model: int) -> Array:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(the same)."""
    pe = np.zeros((n_positions, d_model))
    for pos in range(n_positions):
        for i in range(d_model // 2):
            angle = pos / 10000 ** (2 * i / d_model)
            pe[pos, 2 * i] = np.sin(angle)
            pe[pos, 2 * i + 1] = np.cos(angle)
    return pe


def wavelength(i: int, d_model: int) -> float:
    """Positions after which pair i has turned once."""
    return 2 * np.pi * 10000 ** (2 * i / d_model)


# --- Section 3.1: layer normalisation (Ba et al. 2016)


def layer_norm(x: Array, gamma: Array, beta: Array, epsilon: float = 1e-5) -> Array:
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)  # divided by d, not by d - 1
    return gamma * (x - mean) / np.sqrt(variance + epsilon) + beta


# --- Section 3.2: attention


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention(q: Array, k: Array, v: Array, *, causal: bool) -> Array:
    """Equation 1: softmax(Q K^T / √d_k) V. Causal: row t does not see what comes after t."""
    scores = q @ k.T / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(len(q), len(k), dtype=bool), scores, -np.inf)
    return softmax(scores) @ v


def linear(x: Array, w: Weights, name: str) -> Array:
    """x W + b; PyTorch keeps W transposed. The paper's attention has no b, its usual code has."""
    return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", np.zeros(()))


def multi_head_attention(x: Array, memory: Array, w: Weights, name: str, n_heads: int, *, causal: bool) -> Array:
    """Section 3.2.2: queries from `x`, keys and values from `memory`."""
    q, k, v = linear(x, w, f"{name}.w_q"), linear(memory, w, f"{name}.w_k"), linear(memory, w, f"{name}.w_v")
    d_k = q.shape[-1] // n_heads
    heads = []
    for h in range(n_heads):
        columns = slice(h * d_k, (h + 1) * d_k)
        heads.append(attention(q[:, columns], k[:, columns], v[:, columns], causal=causal))
    return linear(np.concatenate(heads, axis=-1), w, f"{name}.w_o")


# --- Section 3.3: the position-wise feed-forward network


def feed_forward(x: Array, w: Weights, name: str) -> Array:
    """Equation 2: max(0, x W_1 + b_1) W_2 + b_2."""
    return linear(np.maximum(0, linear(x, w, f"{name}.w_1")), w, f"{name}.w_2")


# --- Section 3.1: the layers


def add_and_norm(x: Array, sublayer: Array, w: Weights, name: str) -> Array:
    """LayerNorm(x + Sublayer(x))."""
    return layer_norm(x + sublayer, w[f"{name}.norm.weight"], w[f"{name}.norm.bias"])


def encoder_layer(x: Array, w: Weights, name: str, n_heads: int) -> Array:
    attended = multi_head_attention(x, x, w, f"{name}.self_attention", n_heads, causal=False)
    x = add_and_norm(x, attended, w, f"{name}.self_attention_residual")
    return add_and_norm(x, feed_forward(x, w, f"{name}.ffn"), w, f"{name}.ffn_residual")


def decoder_layer(y: Array, memory: Array, w: Weights, name: str, n_heads: int) -> Array:
    attended = multi_head_attention(y, y, w, f"{name}.self_attention", n_heads, causal=True)
    y = add_and_norm(y, attended, w, f"{name}.self_attention_residual")
    read = multi_head_attention(y, memory, w, f"{name}.cross_attention", n_heads, causal=False)
    y = add_and_norm(y, read, w, f"{name}.cross_attention_residual")
    return add_and_norm(y, feed_forward(y, w, f"{name}.ffn"), w, f"{name}.ffn_residual")


# --- Section 3.4: embeddings and output


def embed(ids: list[int], table: Array) -> Array:
    """√d_model E[token] + PE(position)."""
    d_model = table.shape[1]
    return np.sqrt(d_model) * table[ids] + positional_encoding(len(ids), d_model)


def encode(source: list[int], w: Weights, n_layers: int, n_heads: int) -> Array:
    x = embed(source, w["encoder.embedding.tokens.weight"])
    for i in range(n_layers):
        x = encoder_layer(x, w, f"encoder.layers.{i}", n_heads)
    return x


def decode(target: list[int], memory: Array, w: Weights, n_layers: int, n_heads: int) -> Array:
    """Logits: one matrix serves source, target and output."""
    table = w["encoder.embedding.tokens.weight"]
    y = embed(target, table)
    for i in range(n_layers):
        y = decoder_layer(y, memory, w, f"decoder.layers.{i}", n_heads)
    return y @ table.T


# --- Section 5: training


def learning_rate(step: int, d_model: int, warmup_steps: int) -> float:
    """Equation 3."""
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def smoothed_cross_entropy(logits: Array, right: int, epsilon: float) -> float:
    """Section 5.4: the target is 1 - ε on the right token and ε/V on each of the V tokens."""
    target = np.full(len(logits), epsilon / len(logits))
    target[right] += 1 - epsilon
    return float(-(target * np.log(softmax(logits))).sum())


# --- Table 3: parameters


def parameters(vocabulary: int, d: int, d_ff: int, n_layers: int) -> int:
    """N encoder and N decoder layers, one shared embedding, biases everywhere."""
    attention_size = 4 * d * d + 4 * d
    ffn_size = d * d_ff + d_ff + d_ff * d + d
    encoder = attention_size + ffn_size + 2 * (2 * d)
    decoder = 2 * attention_size + ffn_size + 3 * (2 * d)
    return vocabulary * d + n_layers * (encoder + decoder)
