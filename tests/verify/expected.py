"""What each bug of the foreign models must be called, and the configurations that they set out to be."""

from glassformer.config import ModelConfig
from tests.verify import foreign

_PAPER = {
    "source_vocabulary": 13, "target_vocabulary": 13, "n_encoder_layers": 2, "n_decoder_layers": 2,
    "d_model": 64, "d_ff": 256, "n_heads": 4,
}  # fmt: skip
_MODERN = {
    "kind": "decoder", "target_vocabulary": 13, "n_decoder_layers": 2, "d_model": 64, "d_ff": 128, "n_heads": 4,
    "n_kv_heads": 2, "norm": {"kind": "rmsnorm", "placement": "pre"}, "positions": {"kind": "rotary"},
    "ffn": {"activation": "silu", "gated": True}, "biases": "none", "embedding": {"scale": False},
    "tying": "target-output",
}  # fmt: skip
CONFIGS = {
    "PAPER": (foreign.PAPER, ModelConfig.model_validate(_PAPER)),
    "PRE": (
        foreign.PRE,
        ModelConfig.model_validate(_PAPER | {"norm": {"placement": "pre"}, "ffn": {"activation": "gelu"}}),
    ),
    "MODERN": (foreign.MODERN, ModelConfig.model_validate(_MODERN)),
}
OTHER_NAMES = {
    "missing_final_norm": "missing-final-norm-both",
    "rope_base_1e5": "position-base-100000",
    "gelu_tanh_for_erf": "activation-gelu-tanh",
    "gelu_for_relu": "activation-gelu",
    "silu_for_relu": "activation-silu",
    "relu_for_gelu": "activation-relu",
    "ffn_activation_missing": "activation-missing",
    "eps_outside": "epsilon-outside-root",
    "eps_1e-6": "epsilon-1e-06",
    "eps_1e-3": "epsilon-0.001",
    "padding_visible_in_cross": "padding-visible-cross",
    "no_bias_q": "no-bias-w-q",
    "no_bias_o": "no-bias-w-o",
    "no_bias_ffn_2": "no-bias-w-2",
}


def name_of(bug: str, config: str) -> str:
    """Return what the report must call a bug."""
    if bug == "missing_final_norm" and config == "MODERN":
        return "missing-final-norm-decoder"
    return OTHER_NAMES.get(bug, bug.replace("_", "-"))


def configs_of(bug: str) -> tuple[str, ...]:
    """Return the configurations that a bug can be put into."""
    return foreign.APPLIES.get(bug, tuple(CONFIGS))
