"""Configurations as TOML files: presets, a user's own, overrides from the command line."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import tomli_w
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from glassformer.config.run import Config
from glassformer.errors import ConfigError, nearest

PRESETS = resources.files("glassformer") / "presets"


def preset_names() -> list[str]:
    """Return the names of all presets, sorted."""
    return sorted(entry.name.removesuffix(".toml") for entry in PRESETS.iterdir() if entry.name.endswith(".toml"))


def preset(name: str, overrides: Iterable[str] = ()) -> Config:
    """Return the preset of that name, with dotted overrides such as "model.d_model=128".

    Raises:
        ConfigError: No such preset, field or value; the message names the nearest right one.

    """
    if name not in preset_names():
        raise ConfigError(
            f"there is no preset {name!r}{nearest(name, preset_names())} Presets: {_listed(preset_names())}"
        )
    text = (PRESETS / f"{name}.toml").read_text(encoding="utf-8")
    return parse(text, f"preset {name}", overrides)


def load_config(name: str | Path, overrides: Iterable[str] = ()) -> Config:
    """Return the configuration of a TOML file, of a run directory, or of a preset, in this order.

    Raises:
        ConfigError: Nothing of that name, or it does not hold a valid configuration.

    """
    path = Path(name)
    if path.is_dir():
        path /= "config.toml"
        if not path.is_file():
            raise ConfigError(f"{name} is a directory without a config.toml: not a run")
    if path.is_file():
        try:
            return parse(path.read_text(encoding="utf-8-sig"), str(path), overrides)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {path}: {error}") from error
    if path.suffix == ".toml" or len(path.parts) > 1:
        raise ConfigError(f"there is no file or run {str(name)!r}. Presets: {_listed(preset_names())}")
    return preset(str(name), overrides)


def parse(text: str, where: str, overrides: Iterable[str] = ()) -> Config:
    """Return the configuration that a TOML text holds; `where` names it in errors."""
    try:
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{where} is not valid TOML: {error}") from error
    for override in [overrides] if isinstance(overrides, str) else overrides:
        _apply(values, override)
    return validated(values, f"{where}: ")


def dump(config: Config) -> str:
    """Return the configuration as TOML with every field that is set, defaults included."""
    return tomli_w.dumps(config.model_dump(mode="python", exclude_none=True))


def with_decode(config: Config, changes: Mapping[str, Any]) -> Config:
    """Return the configuration with some fields of [decode] changed; None leaves one as it is.

    What cannot go on beside a change falls away: sampling when a beam is asked for, a beam when sampling is.

    Raises:
        ConfigError: No such field, or a value that it cannot have.

    """
    values = config.model_dump(mode="python", exclude_none=True)
    now, changes = values["decode"], {name: value for name, value in changes.items() if value is not None}
    dropped = _excluded(now, changes)
    values["decode"] = {name: value for name, value in now.items() if name not in dropped} | changes
    return validated(values)


def differences(one: Config, other: Config, *, table: str = "") -> list[str]:
    """Return what differs between two configurations, or between one table of both, such as "train.steps=5, not 6"."""
    a, b = (_flat(config.model_dump(mode="python", exclude={"about"})) for config in (one, other))
    fields = [field for field in {**a, **b} if field.startswith(table)]
    own, others = ({field: "unset" if v.get(field) is None else repr(v[field]) for field in fields} for v in (a, b))
    return [f"{field}={own[field]}, not {others[field]}" for field in fields if a.get(field) != b.get(field)]


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables as one, by dotted fields."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return flat


def _excluded(now: Mapping[str, Any], changes: Mapping[str, Any]) -> set[str]:
    """Return the fields of [decode] that cannot go on beside these changes."""
    excluded: set[str] = set()
    if "beam_size" in changes or changes.get("sample") is False:
        excluded |= {"sample", "temperature", "top_k", "top_p", "seed"}
    if changes.get("sample"):
        excluded.add("beam_size")
    elif "beam_size" in changes and now.get("n_best", 1) > changes["beam_size"]:
        excluded.add("n_best")
    if changes.get("length_penalty") in ("average", "none"):
        excluded.add("alpha")
    if "max_length" in changes:
        excluded.add("extra_length")
    if "extra_length" in changes:
        excluded.add("max_length")
    return excluded


def validated(values: dict[str, Any], where: str = "") -> Config:
    """Return the configuration that nested tables hold; `where` stands before what is said of a wrong one.

    Raises:
        ConfigError: A field does not exist, or has a value that it cannot have.

    """
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError(where + "; ".join(map(_sentence, error.errors()))) from None


def _apply(values: dict[str, Any], override: str) -> None:
    """Set one dotted key in the tables of `values`: "train.steps=500"; an empty value takes the key out."""
    key, equals, value = override.partition("=")
    *tables, field = key.strip().split(".")
    if not equals or not tables:
        raise ConfigError(f"{override}: write a dotted field and its value, such as train.steps=500")
    _check_key(key.strip(), override)
    for table in tables:
        values = values.setdefault(table, {})
        if not isinstance(values, dict):
            raise ConfigError(f"{override}: {table} is {values!r} in the file, not a table of fields")
    if value.strip():
        values[field] = _toml_value(value.strip())
    else:
        values.pop(field, None)


def _toml_value(text: str) -> Any:
    """Read a value as TOML does; a bare word is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _check_key(key: str, override: str) -> None:
    """Refuse a key that is no field, before a table of that name is made."""
    model: type[BaseModel] | None = Config
    walked: list[str] = []
    for part in key.split("."):
        if model is None:
            raise ConfigError(f"{override}: {'.'.join(walked)} is a value, not a table of fields")
        if part not in model.model_fields:
            inside = f"[{'.'.join(walked)}]" if walked else "a configuration"
            names = list(model.model_fields)
            raise ConfigError(
                f"{override}: {inside} has no field {part!r}{nearest(part, names)} Fields: {_listed(names)}"
            )
        walked.append(part)
        model = table_class(model.model_fields[part].annotation)
    if model is not None:
        raise ConfigError(f"{override}: {key} is a table; set one of its fields: {_listed(model.model_fields)}")


def table_class(annotation: Any) -> type[BaseModel] | None:
    """Return the class of a table, of one that may be missing too; None of a value."""
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _sentence(error: ErrorDetails) -> str:
    """Turn one of pydantic's findings into a sentence that says what to do."""
    path = [str(part) for part in error["loc"]]
    name, got = ".".join(path), error["input"]
    match error["type"]:
        case "extra_forbidden":
            names = _fields_at(path[:-1])
            table = f"[{'.'.join(path[:-1])}]" if path[:-1] else "a configuration"
            return f"{table} has no field {path[-1]!r}{nearest(path[-1], names)} Fields: {_listed(names)}"
        case "literal_error":
            allowed = [word.strip("' ") for word in error["ctx"]["expected"].replace(" or ", ", ").split(",")]
            return f"{name}={got!r} is not known{nearest(str(got), allowed)} Allowed: {_listed(allowed)}"
        case "missing":
            return f"{name} is missing"
        case "value_error":
            return f"{'.'.join(path)}: {error['ctx']['error']}" if path else str(error["ctx"]["error"])
        case _:
            message = error["msg"].removeprefix("Input ").replace("a valid tuple", 'a list, such as ["a", "b"]')
            message = message.replace("a valid string", f'a text in quotes, such as "{got}"')
            return f"{name}={got!r} is not right: it {message}"


def _fields_at(path: Sequence[str]) -> list[str]:
    model: type[BaseModel] = Config
    for part in path:
        model = table_class(model.model_fields[part].annotation) or model
    return list(model.model_fields)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
