"""`glassformer verify`: where and why another implementation differs."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from glassformer.cli.options import JsonOption, SetOption
from glassformer.cli.show import print_json, table
from glassformer.errors import VerifyError, nearest


def verify(
    x: Annotated[
        str,
        typer.Argument(
            metavar="PRESET-or-RUN", help="What it should be: a preset, a file or a run.", show_default=False
        ),
    ],
    against: Annotated[
        str,
        typer.Option(
            metavar="MODULE:NAME",
            help="The other implementation, such as mymodel.py:build: a torch module that takes ids and gives logits, "
            "a class or function without arguments that makes one, or a function of ids, or of weights and ids.",
            show_default=False,
        ),
    ],
    weights: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Its weights: .safetensors, or .pt with tensors and nothing else."),
    ] = None,
    mapping: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A TOML file that says which of its parameters are ours, where that is wrong."
        ),
    ] = None,
    show_mapping: Annotated[
        bool, typer.Option("--show-mapping", help="Print which of its parameters were taken for which of ours.")
    ] = False,
    pad_id: Annotated[int, typer.Option(metavar="N", min=0, help="The id that is padding.")] = 0,
    set_: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Find where another implementation of a model differs, and why.

    Its weights are drawn anew in a copy, our machine gets the same, and both read the same batches in float64. Where
    they differ, known mistakes are tried in ours, one and two at a time, until it computes what theirs does.

    Exit code 0: equal. 1: it differs.
    """
    from glassformer.verification import verify as compare
    from glassformer.verification.report import mapping_rows

    report = compare(
        _made(_imported(against)),
        x,
        weights=None if weights is None else _weights(weights),
        mapping=None if mapping is None else _toml(mapping),
        pad_id=pad_id,
        overrides=tuple(set_ or ()),
    )
    if json:
        print_json({"verdict": report.verdict, **vars(report)})
    else:
        typer.echo(str(report))
        if show_mapping:
            typer.echo()
            table(("ours", "theirs", "how"), mapping_rows(report.mapping), align="lll")
    if not report.equal:
        raise typer.Exit(1)


def _imported(path: str) -> Any:
    """Import what MODULE:NAME names; a module is a file or a name to be found from the current folder."""
    module_name, _, name = path.rpartition(":")
    if not module_name or not name:
        raise typer.BadParameter(
            f"{path!r}: write MODULE:NAME, such as mymodel:Transformer or mymodel.py:build", param_hint="--against"
        )
    try:
        if module_name.endswith(".py"):
            file = Path(module_name)
            if not file.is_file():
                raise VerifyError(f"cannot read {file}: there is no such file")
            sys.path.insert(0, str(file.resolve().parent))
            module_name = file.stem
        else:
            sys.path.insert(0, str(Path.cwd()))
        module = importlib.import_module(module_name)
    except VerifyError:
        raise
    except Exception as error:  # whatever a stranger's module does while it is imported
        raise VerifyError(f"cannot import {module_name}: {type(error).__name__}: {error}") from error
    if not hasattr(module, name):
        raise VerifyError(f"{module_name} has no {name!r}{nearest(name, vars(module))}")
    return getattr(module, name)


def _made(found: Any) -> Any:
    """Call what makes a model: a class, or a function without arguments."""
    if not callable(found) or (not inspect.isclass(found) and not inspect.isfunction(found)):
        return found
    needed = [
        parameter
        for parameter in inspect.signature(found).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needed and inspect.isclass(found):
        names = ", ".join(parameter.name for parameter in needed)
        raise VerifyError(f"{found.__name__} needs {names}: give a function without arguments that makes it")
    return found if needed else found()


def _weights(path: Path) -> Mapping[str, Any]:
    """Read tensors from a file; nothing in it is run."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        found = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise VerifyError(f"cannot read {path}: {error.strerror or error}") from error
    except SafetensorError as error:
        raise VerifyError(f"{path} is no file of tensors, or damaged: {error}") from error
    except Exception as error:  # the library raises many kinds for what is not allowed, or no such file
        first = str(error).split("\n", 1)[0]
        raise VerifyError(
            f"{path} holds something else than tensors, or is damaged; it was not loaded ({first})"
        ) from error
    if not isinstance(found, Mapping):
        raise VerifyError(f"{path} holds a {type(found).__name__}, not tensors by name")
    return found


def _toml(path: Path) -> Mapping[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise VerifyError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise VerifyError(f"{path} is no TOML: {error}") from error
