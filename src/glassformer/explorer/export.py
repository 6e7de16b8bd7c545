"""The explorer as one file that works offline: the machine, the walk and the attention of one input."""

import base64
import math
import re
from pathlib import Path
from typing import Any

import pydantic_core

from glassformer.errors import CheckpointError, DataError
from glassformer.explorer import api, learning, server
from glassformer.explorer.shelf import Shelved
from glassformer.files import write_text

ROOM = 20 * 2**20  # bytes of the file
PROVES = "proving a cell of it needs the weights, which are too large for one file"
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)


def write_page(shelved: Shelved, path: Path, *, room: int = ROOM) -> list[str]:
    """Write a run's page with its example text to one HTML file; return what was left out, in words.

    Args:
        shelved: The run; its `example`, or the text of its task, is what the model reads.
        path: Where to.
        room: The most bytes of the file.

    Raises:
        CheckpointError: The page was not built, or the file cannot be written.
        DataError: There is no text to begin with, or it cannot be read.

    """
    files = [server.STATIC / name for name in ("index.html", "page.css", "page.js")]
    if not all(file.is_file() for file in files):
        raise CheckpointError("the explorer's page is not built; with Node 20 at hand: make web")
    page, style, script = (file.read_text(encoding="utf-8") for file in files)
    text = shelved.example or api.example(shelved.run.config)
    if not text:
        raise DataError("say which text the page shows: --text")
    pack = _pack(shelved, text, room - len(style.encode()) - len(script.encode()))
    head = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}" />'
    page = page.replace('<meta charset="utf-8" />', f'<meta charset="utf-8" />\n    {head}', 1)
    page = re.sub(r'\s*<link rel="stylesheet"[^>]*>', lambda _: f"\n    <style>{style}</style>", page, count=1)
    page = re.sub(r'\s*<script type="module"[^>]*></script>', "", page, count=1)
    # "\u003c" is "<" in data, but ends no element; in a program "</script" can only stand in a string
    data = pydantic_core.to_json(pack, inf_nan_mode="null").decode().replace("<", "\\u003c")
    program = script.replace("</script", r"<\/script")
    whole = (
        f'<script type="application/json" id="glassformer-data">{data}</script>\n'
        f'<script type="module">{program}</script>\n  </body>'
    )
    write_text(path, page.replace("</body>", whole, 1))
    return list(pack["left_out"])


def _pack(shelved: Shelved, text: str, room: int) -> dict[str, Any]:
    request = api.Request(text)
    walk = api.walk(shelved, request)
    about = api.about([shelved])
    about["runs"][0]["snapshots"] = []
    pack: dict[str, Any] = {
        "about": about,
        "input": {"run": 0, "source": text, "target": None, "snapshot": None},
        "walk": walk,
        "best": api.best(shelved, request) if "probabilities" in walk["tensors"] else None,
        "parameters": api.parameters(shelved),
        "positions": learning.positions(shelved.run.config.model),
    }
    room -= len(pydantic_core.to_json(pack)) + 2**14  # the rest of the file
    tensors, left_out = {}, []
    for name in sorted(walk["tensors"], key=_importance):
        size = _size(walk["tensors"][name]["shape"])
        if size > room or math.prod(walk["tensors"][name]["shape"]) > api.MOST:
            left_out.append(name)
            continue
        room -= size
        tensors[name] = _packed(api.tensor(shelved, request, name))
    weights = dict(shelved.run.model.named_parameters(remove_duplicate=False))
    needed = sum(_size(tuple(weight.shape)) for weight in weights.values())
    fits = needed <= room and all(weight.numel() <= api.MOST for weight in weights.values())
    pack["tensors"] = tensors
    pack["weights"] = {name: _packed(api.parameter(shelved, name)) for name in weights} if fits else {}
    words = [f"{name}, for which there is no room" for name in left_out[:5]]
    words += [f"and {len(left_out) - 5} more tensors"] if len(left_out) > 5 else []
    pack["left_out"] = words + ([] if fits else [f"the weights: {PROVES}"])
    return pack


def _importance(name: str) -> int:
    """Say what is kept first: attention, what the layers make, then all else."""
    ends = name.rpartition(".")[2]
    order = [("weights", "masked"), ("output", "memory", "logits", "probabilities", "positioned"), ("normed", "sum")]
    return next((rank for rank, group in enumerate(order) if ends in group), len(order))


def _size(shape: tuple[int, ...]) -> int:
    return 128 + math.ceil(4 * math.prod(shape) / 3) * 4


def _packed(numbers: api.Numbers) -> dict[str, Any]:
    data = base64.b64encode(numbers.values.astype("<f4").tobytes()).decode()
    return {"shape": numbers.shape, "data": data}
