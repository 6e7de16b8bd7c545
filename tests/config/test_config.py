"""Configurations: what is refused, with which sentence, and that files and fields are inverse."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from glassformer.config import (
    Config,
    ModelConfig,
    TrainConfig,
    dump,
    load_config,
    parse,
    preset,
    preset_names,
)
from glassformer.errors import ConfigError

EIGHT = {"source_vocabulary": 8, "target_vocabulary": 8, "n_encoder_layers": 1, "n_decoder_layers": 1}


def test_presets() -> None:
    assert preset_names() == [
        "char-lm", "microscope", "number-words", "paper-base", "paper-big", "reversal", "router", "smollm2-135m",
        "translate-small",
    ]  # fmt: skip


@pytest.mark.parametrize("name", preset_names())
def test_dump_and_parse_are_inverse(name: str) -> None:
    config = preset(name)
    assert config.about
    assert parse(dump(config), "here") == config


@given(
    st.integers(1, 10**6),
    st.floats(0, 0.99),
    st.floats(1e-12, 1.0),
    st.sampled_from(["relu", "gelu", "gelu-tanh", "silu"]),
)
def test_any_values_survive_the_file(steps: int, rate: float, eps: float, activation: str) -> None:
    model = ModelConfig.model_validate(
        {**EIGHT, "dropout": {"ffn": rate}, "norm": {"eps": eps}, "ffn": {"activation": activation}}
    )
    config = Config(about='é 東 😀 "quoted"\nnewline', model=model, train=TrainConfig(steps=steps))
    assert parse(dump(config), "here") == config


def test_configs_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        preset("reversal").model.d_model = 3  # type: ignore[misc]


def test_top_level_has_at_most_20_fields() -> None:
    assert len(ModelConfig.model_fields) <= 20


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("model.d_modle=3", "model.d_modle=3: [model] has no field 'd_modle'; did you mean 'd_model'? Fields: kind, "),
        ("model.norm.epss=3", "[model.norm] has no field 'epss'; did you mean 'eps'? Fields: kind, eps, placement, final, embedding"),
        ("modle.d_model=3", "a configuration has no field 'modle'; did you mean 'model'? Fields: about, model, data, text, target_text, train, decode, notes"),
        ("model.zzz=3", "[model] has no field 'zzz'. Fields: "),
        ("model.norm=3", "model.norm is a table; set one of its fields: kind, eps, placement, final, embedding"),
        ("model.d_model.x=3", "model.d_model is a value, not a table of fields"),
        ("steps", "write a dotted field and its value, such as train.steps=500"),
        ("steps=3", "write a dotted field and its value, such as train.steps=500"),
        ("model.norm.kind=layrnorm", "model.norm.kind='layrnorm' is not known; did you mean 'layernorm'? Allowed: layernorm, rmsnorm"),
        ("model.kind=7", "model.kind=7 is not known. Allowed: encoder-decoder, decoder, encoder"),
        ("train.steps=many", "train.steps='many' is not right: it should be a valid integer"),
        ("train.steps=0", "train.steps=0 is not right: it should be greater than or equal to 1"),
        ("model.dropout.residual=1.5", "model.dropout.residual=1.5 is not right: it should be less than 1"),
        ("model.n_heads=5", "d_model=64 does not divide into n_heads=5 equal heads; change one of them, or set d_head"),
        ("model.n_kv_heads=3", "n_heads=4 is not a multiple of n_kv_heads=3"),
        (
            "model.source_vocabulary=32000",
            "tying='all' makes source and target one matrix, but source_vocabulary=32000 and target_vocabulary=13 differ; "
            "use one vocabulary for both, or tying='target-output' or 'none'",
        ),
        ("model.positions.kind=learned", "learned positions need a table: set positions.size"),
        ("model.positions.size=9", "positions.size belongs to learned positions; sinusoidal positions have no table"),
        ("model.positions.convention=halves", "positions.convention belongs to rotary positions, not to sinusoidal ones"),
        ("model.embedding.token_types=2", "embedding.token_types belongs to kind='encoder', not to kind='encoder-decoder'"),
        ("model.classifier.classes=5", "[classifier] belongs to kind='encoder'; a model of kind='encoder-decoder' scores tokens"),
        ("model.positions.base=inf", "model.positions.base=inf is not right: it should be a finite number"),
        ("train.seed=99999999999999999999", "it should be less than or equal to 9223372036854775807"),
        ("data.shortest=9", "data.shortest=9 is more than data.longest=8"),
    ],
)  # fmt: skip
def test_overrides_that_are_refused(override: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        preset("reversal", [override])
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"kind": "decoder", "target_vocabulary": 8}, "a model of kind='decoder' needs n_decoder_layers, the number of its decoder's layers"),
        ({"kind": "decoder", **EIGHT}, "a model of kind='decoder' has no encoder: leave source_vocabulary out"),
        ({"kind": "encoder", "source_vocabulary": 8, "n_encoder_layers": 1}, "tying='all' does not exist for kind='encoder'"),
        (
            {"kind": "encoder", "source_vocabulary": 8, "n_encoder_layers": 1, "tying": "none", "output_bias": True},
            "output_bias belongs to models that score tokens",
        ),
        ({**EIGHT, "d_model": 9, "n_heads": 1}, "sinusoidal positions fill pairs of columns, so d_model=9 must be even"),
        ({**EIGHT, "d_head": 3, "positions": {"kind": "rotary"}}, "rotary positions turn pairs of numbers, so d_head=3 must be even"),
        ({**EIGHT, "positions": {"kind": "learned", "size": 3, "first": 3}}, "positions.first=3 lies past the table"),
        ({**EIGHT, "positions": {"kind": "none", "base": 5.0}}, "positions.base belongs to sinusoidal and rotary positions"),
        ({**EIGHT, "positions": {"kind": "none", "first": 1}}, "positions.first numbers the positions"),
        ({**EIGHT, "positions": {"kind": "rotary", "ladder": "halves"}}, "positions.ladder belongs to sinusoidal positions"),
        ({**EIGHT, "d_model": 2, "n_heads": 1, "positions": {"ladder": "tensor2tensor"}}, "d_model=2 is too small"),
    ],
)  # fmt: skip
def test_models_that_make_no_sense(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ModelConfig.model_validate(values)
    assert sentence in str(caught.value)


def test_an_override_of_a_value_that_should_be_a_table() -> None:
    with pytest.raises(ConfigError, match="model is 3 in the file, not a table of fields"):
        parse("model = 3", "here", ["model.d_model=3"])


def test_an_empty_override_takes_a_field_out() -> None:
    """So that steps can stand where a preset has epochs, which would not go together."""
    config = preset("number-words", ["train.epochs=", "train.steps=7", "model.dropout.attention="])
    assert config.train is not None
    assert (config.train.epochs, config.train.steps) == (None, 7)


def test_one_override_may_come_alone() -> None:
    assert preset("reversal", "model.d_model=32") == preset("reversal", ["model.d_model=32"])


def test_a_byte_order_mark_is_no_toml(tmp_path: Path) -> None:
    (tmp_path / "bom.toml").write_text(dump(preset("router")), encoding="utf-8-sig")
    assert load_config(tmp_path / "bom.toml") == preset("router")


def test_overrides_take_any_kind_of_value() -> None:
    config = preset(
        "reversal",
        ["model.norm.kind=rmsnorm", "model.norm.eps=1e-6", "model.norm.final=true", "train.steps=1_000"],
    )
    assert config.model.norm.kind == "rmsnorm"
    assert config.model.norm.eps == 1e-6
    assert config.model.norm.final is True
    assert config.train is not None
    assert config.train.steps == 1000


def test_nearest_preset() -> None:
    with pytest.raises(ConfigError, match=r"there is no preset 'reversl'; did you mean 'reversal'\? Presets: char-lm"):
        load_config("reversl")


def test_load_config_finds_files_runs_and_presets(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(dump(preset("microscope")), encoding="utf-8")
    assert load_config(mine) == preset("microscope")
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.toml").write_text(dump(preset("router")), encoding="utf-8")
    assert load_config(run) == preset("router")
    assert load_config("router") == preset("router")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"[model", "is not valid TOML"),
        (b'[model]\nkind = "encodr"', "model.kind='encodr' is not known; did you mean 'encoder'?"),
        (b"about = 3", "model is missing"),
        (b"x=" + b"[" * 5000, "is not valid TOML"),
        (b"\xff\xfe", "cannot read"),
    ],
)
def test_bad_files(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert sentence in str(caught.value)
    assert str(path) in str(caught.value)


def test_missing_file_and_directory_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file or run"):
        load_config(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match=r"a directory without a config\.toml: not a run"):
        load_config(tmp_path)


def test_configs_need_no_torch() -> None:
    code = "import sys, glassformer.config, glassformer.learn.schedule; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
