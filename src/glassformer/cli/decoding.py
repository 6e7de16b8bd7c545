"""The options of how a model writes, which several verbs share: one for each field of [decode]."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer

from glassformer.cli.options import LARGEST


def _option(*names: str, help: str, metavar: str | None = "N", **settings: Any) -> Any:
    panel = "How it writes (what is not set here: as the run's configuration says)"
    return typer.Option(*names, help=help, metavar=metavar, show_default=False, rich_help_panel=panel, **settings)


FIELDS: dict[str, Any] = {
    "beam_size": Annotated[
        int | None,
        _option(min=1, max=LARGEST, help="Hypotheses that go on at each step; 1: greedy."),
    ],
    "n_best": Annotated[
        int | None, _option(min=1, max=LARGEST, help="Results for each line; with a beam, at most its size.")
    ],
    "length_penalty": Annotated[
        Literal["wu", "power", "average", "none"] | None,
        _option(
            metavar=None, help="The score is log-probability / penalty: wu ((5+n)/6)^α, power n^α, average n, none 1."
        ),
    ],
    "alpha": Annotated[float | None, _option(metavar="X", help="α of wu and power. \\[default: 0.6]")],
    "max_length": Annotated[
        int | None,
        _option(min=1, max=LARGEST, help="At most so many tokens, the end token too. \\[default: source + 50]"),
    ],
    "min_length": Annotated[
        int | None, _option(min=0, max=LARGEST, help="At least so many tokens, the end token too.")
    ],
    "extra_length": Annotated[
        int | None, _option(min=0, max=LARGEST, help="At most so many tokens more than the source has.")
    ],
    "forbidden": Annotated[
        list[str] | None, _option("--forbid", metavar="TOKEN", help="A token that is never written. Repeatable.")
    ],
    "no_repeat_ngram": Annotated[
        int | None,
        _option(min=0, max=LARGEST, help="So many tokens in a row never occur twice in a result; 0: they may."),
    ],
    "sample": Annotated[
        bool | None, _option("--sample/--no-sample", metavar=None, help="Draw each token by its probability.")
    ],
    "temperature": Annotated[
        float | None, _option(metavar="X", help="Logits are divided by it before a token is drawn.")
    ],
    "top_k": Annotated[int | None, _option(min=1, max=LARGEST, help="Draw from the k most likely tokens.")],
    "top_p": Annotated[
        float | None, _option(metavar="SHARE", help="Draw from the fewest that have this share together.")
    ],
    "seed": Annotated[int | None, _option(min=0, help="With the line's number, it decides what is drawn.")],
}


SCORING = ("length_penalty", "alpha", "min_length", "forbidden", "no_repeat_ngram")  # what decides a text's score


def decoding(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb options of [decode], those of these names or all; what was set reaches it as `decode`."""
    options = {name: FIELDS[name] for name in names or FIELDS}

    def give(verb: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(verb, eval_str=True)
        kind = inspect.Parameter.KEYWORD_ONLY
        own = [p.replace(kind=kind) for name, p in signature.parameters.items() if name != "decode"]
        shared = [inspect.Parameter(name, kind, default=None, annotation=option) for name, option in options.items()]

        @functools.wraps(verb)
        def wrapped(**given: Any) -> None:
            fields = {name: given.pop(name) for name in options}
            verb(**given, decode={name: value for name, value in fields.items() if value not in (None, [])})

        wrapped.__signature__ = signature.replace(parameters=[*own, *shared])  # type: ignore[attr-defined]
        wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *shared)}
        return wrapped

    return give
