"""Messages as the text that a model was taught to answer, by a chat template: a program in jinja2, from a stranger.

It runs in jinja2's sandbox. What people write is put in afterwards and stays text: the characters of a special token in
a message are no such token.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from glassformer.errors import DataError
from glassformer.text.tokenizer import Tokenizer

FILE = "chat_template.jinja"
MARK = "\ue000{}\ue001"  # stands for a message while the template runs; of characters that no text has
MARKED = re.compile("\ue000(\\d+)\ue001")


def chat_ids(template: str, tokenizer: Tokenizer, messages: Sequence[Mapping[str, str]]) -> list[int]:
    """Return the ids of messages, ready for the answer.

    Args:
        template: The template.
        tokenizer: Of the model.
        messages: Each with its "role" and "content", the oldest first.

    Raises:
        DataError: The template cannot be read, does something that it may not, or refuses the messages; or the package
            jinja2 is not installed.

    """
    marked = [{**message, "content": MARK.format(i)} for i, message in enumerate(messages)]
    rendered = _render(template, marked, tokenizer)
    ids: list[int] = []
    specials = sorted(tokenizer.special_names, key=len, reverse=True)
    cut = re.compile("|".join(map(re.escape, specials)) or "(?!)")
    places = [0, *(end for found in cut.finditer(rendered) for end in found.span()), len(rendered)]
    for number, (start, end) in enumerate(pairwise(places)):
        piece = rendered[start:end]
        if number % 2:
            ids.append(tokenizer.id_of(piece))
        elif piece:
            ids += tokenizer.encode(MARKED.sub(lambda found: messages[int(found[1])]["content"], piece))
    return ids


def _render(template: str, messages: Sequence[Mapping[str, str]], tokenizer: Tokenizer) -> str:
    try:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise DataError("a chat template needs the package jinja2: pip install 'glassformer[chat]'") from error

    def refuse(reason: str) -> None:
        raise DataError(f"the chat template refuses the messages: {reason}")

    names = tokenizer.tokens([i for i in (tokenizer.start_id, tokenizer.end_id) if i is not None])
    try:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = refuse
        return environment.from_string(template).render(
            messages=messages,
            add_generation_prompt=True,
            bos_token=names[0] if tokenizer.start_id is not None else "",
            eos_token=names[-1],
        )
    except DataError:
        raise
    except (
        TemplateError,
        TypeError,
        ValueError,
        LookupError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise DataError(f"the chat template does not work: {type(error).__name__}: {error}") from error
