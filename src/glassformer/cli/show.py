"""How results look in a terminal."""

import io
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

SHADES = ("·", "░", "▒", "▓", "█")
STEPS = (0.05, 0.25, 0.5, 0.75)


def print_json(value: Any) -> None:
    """Print one JSON object on one line."""
    typer.echo(as_json(value))


def as_json(value: Any, indent: int | None = None) -> str:
    """Write a value as JSON; numbers that JSON does not have (infinity, NaN) become null."""
    text = json.dumps(_plain(value), ensure_ascii=False, indent=indent)
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")  # JSON is UTF-8, whatever came in


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, align: str, title: str = "") -> None:
    """Print a table on standard output; `align` has a letter for each column, l for left and r for right.

    Nothing is cut off: a table that is wider than the terminal wraps there.
    """
    grid = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", title_style="", pad_edge=False)
    for column, side in zip(columns, align, strict=True):
        grid.add_column(column, justify="left" if side == "l" else "right", no_wrap=True)
    for row in rows:
        grid.add_row(*row)
    drawn = io.StringIO()
    console = Console(file=drawn, width=10_000, highlight=False, markup=False, emoji=False)
    console.print(grid)
    for line in drawn.getvalue().splitlines():
        typer.echo(line.rstrip())


def shaded_map(weights: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str]) -> str:
    """Draw weights between 0 and 1 as shaded cells, each row and column with its token."""
    margin = max(map(len, rows))
    width = max(3, *map(len, columns))
    lines = [" " * (margin + 2) + " ".join(column.center(width) for column in columns)]
    for name, row in zip(rows, weights, strict=True):
        cells = [SHADES[sum(weight >= step for step in STEPS)] * width for weight in row]
        lines.append(
            f"{name.rjust(margin)}  " + " ".join(cell if "·" not in cell else "·".center(width) for cell in cells)
        )
    lines.append(" " * (margin + 2) + "· below 0.05  ░ to 0.25  ▒ to 0.5  ▓ to 0.75  █ above")
    return "\n".join(line.rstrip() for line in lines)


def counted(n: int, noun: str) -> str:
    """Write "1 line", "2,000 lines"."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def number(value: float, digits: int = 3) -> str:
    """Write a number with so many decimals, or with a power of ten where those would show little of it."""
    if value == 0 or not math.isfinite(value) or 10 ** -(digits - 1) <= abs(value) < 1e6:
        return f"{value:,.{digits}f}"
    return f"{value:.{digits}e}"


def metric_value(metric: str, value: float) -> str:
    """Write BLEU and chrF as points, the others as per cent."""
    if metric in ("bleu", "chrf"):
        return f"{min(max(value, 0.0), 100.0):.2f}"  # sacreBLEU's interval is symmetric and can pass the ends
    return f"{100 * value:.2f} %"


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
