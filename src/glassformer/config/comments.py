"""A configuration as TOML for people: every field of every table, with the comment that stands beside it in the source.

The comments are written down once, in the classes of the configuration, and read from there.
"""

import ast
import inspect
import io
import tokenize
from collections.abc import Iterator
from functools import cache
from textwrap import wrap
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import tomli_w
from pydantic import BaseModel

from glassformer.config.files import table_class
from glassformer.config.run import Config

WIDTH = 100
KINDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def commented(config: Config, file: str = "config.toml") -> str:
    """Return the configuration as TOML: what is set in it stands, all other fields are commented out.

    Those that have a default show it; of the others the comment says what they may be. Parsed, the text gives an
    equal configuration.

    Args:
        config: Such as a preset.
        file: The name that the text will have, for the line that says how to train it.

    """
    lines = _value_lines("about", config.about)
    can_train = config.data is not None and config.train is not None
    before = "" if can_train else "name the files to learn from in [data], set [train], then "
    lines += _comment(f"To train this: {before}glassformer train {file}")
    lines += _comment(
        "Lines such as #eps = 1e-05 show what holds without them; … stands for nothing: such a field is not set."
    )
    for name, field in Config.model_fields.items():
        if (table := table_class(field.annotation)) is not None:
            lines += _table(name, table, getattr(config, name))
    return "\n".join(lines) + "\n"


@cache
def comments_of(model: type[BaseModel]) -> dict[str, str]:
    """Return the comment of each field that has one: at the end of its lines, or on the lines directly above it."""
    source = inspect.cleandoc("\n" + inspect.getsource(model))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    at = {token.start[0]: token for token in tokens if token.type == tokenize.COMMENT}
    found = {}
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            first = node.lineno
            while first - 1 in at and at[first - 1].line.lstrip().startswith("#"):
                first -= 1
            texts = [at[i].string.lstrip("# ") for i in range(first, (node.end_lineno or first) + 1) if i in at]
            found[node.target.id] = " ".join(texts)
    return {name: text for name, text in found.items() if text}


def _table(path: str, model: type[BaseModel], value: BaseModel | None) -> Iterator[str]:
    """Yield the lines of a table, and of the tables in it; where there is none, all of them are commented out."""
    yield ""
    yield from _comment((inspect.getdoc(model) or "").replace("`", ""))
    yield f"#[{path}]" if value is None else f"[{path}]"
    inside = []
    for name, field in model.model_fields.items():
        own = field.get_default() if value is None else getattr(value, name)
        if (table := table_class(field.annotation)) is not None:
            inside.append((name, table, None if value is None else own))
        else:
            stands = value is not None and name in value.model_fields_set
            yield from _field(name, own, field.annotation, comments_of(model).get(name, ""), stands=stands)
    for name, table, own in inside:
        yield from _table(f"{path}.{name}", table, own)


def _field(name: str, value: Any, annotation: Any, comment: str, *, stands: bool) -> Iterator[str]:
    """Yield a field with its comment: beside it if there is room, else above it."""
    allowed = _allowed(annotation)
    lines = [f"{name} = …"] if value is None else _value_lines(name, value)
    lines = lines if stands else [f"#{line}" for line in lines]
    if '" | "' in allowed:  # a choice, which the comment may explain already
        says_all = all(word.strip('"') in comment for word in allowed.split(" | "))
    else:
        says_all = value is not None and value != ()
    text = "; ".join(filter(None, ("" if says_all else allowed, comment)))
    beside = f"{lines[0]}  # {text}" if text else lines[0]
    if len(lines) == 1 and len(beside) <= WIDTH:
        yield beside
    else:
        yield from _comment(text)
        yield from lines


def _comment(text: str) -> list[str]:
    """Return a text as lines of comment; a paragraph begins a new one."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    return [f"# {line}" for paragraph in paragraphs for line in wrap(paragraph, WIDTH - 2, break_on_hyphens=False)]


def _value_lines(name: str, value: Any) -> list[str]:
    """Return a field and its value as TOML: on one line if there is room."""
    whole = tomli_w.dumps({name: value}).rstrip("\n")
    if isinstance(value, list | tuple):
        items = [_value_lines("_", item)[0].removeprefix("_ = ") for item in value]
        whole = f"{name} = [{', '.join(items)}]"
        if len(whole) > WIDTH:
            return [f"{name} = [", *(f"  {item}," for item in items), "]"]
    if len(whole) <= WIDTH or not isinstance(value, str) or "  " in value:
        return [whole]
    body = whole.removeprefix(f'{name} = "').removesuffix('"')  # a line that ends in \ goes on at the next word
    parts = wrap(body, WIDTH - 6, break_long_words=False, break_on_hyphens=False)
    return [f'{name} = """\\', *(f"  {part} \\" for part in parts[:-1]), f'  {parts[-1]}"""']


def _allowed(annotation: Any) -> str:
    """Say what a field may be: its words, or a kind of value."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " | ".join(f'"{word}"' for word in inside)
    if origin is Annotated:
        return _allowed(inside[0])
    if origin is tuple:
        return f"a list of: {_allowed(inside[0])}"
    if inside:  # optional
        return _allowed(next(one for one in inside if one is not NoneType))
    return KINDS[annotation]
