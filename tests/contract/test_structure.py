"""What holds the house together: who imports whom, how long things are, what the command line costs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "glassformer"
MODULES = sorted(path for path in SOURCE.rglob("*.py"))

# each folder's modules in their order: a module imports from lower levels, or from earlier modules of its own folder
LEVELS: list[dict[str, tuple[str, ...]]] = [
    {"errors": (), "kernels": ()},
    {"config": ("model", "data", "train", "run", "files", "comments"), "files": ()},
    {
        "model": ("tap", "dropout", "cache", "position", "attention", "layer", "transformer"),
        "text": ("lines", "charsmap", "tokenizer", "chat", "vocabularies", "sentencepiece", "learn"),
    },
    {
        "data": ("batch", "tasks", "store", "examples", "plan", "feed", "catalogues", "readers", "corpus", "findings", "doctor"),
        "checkpoint": (),
    },
    {
        "decode": (
            "hypothesis", "rules", "state", "sample", "greedy", "beam", "search", "score", "parallel",
        ),
        "inspect": ("trace", "shapes", "count", "positions", "origin", "compare"),
    },
    {"writer": ()},
    {"run": (), "messages": ()},
    {"evaluate": ("metrics", "paired", "report")},
    {"learn": ("schedule", "loss", "events", "checks", "distributed", "learner", "keeper", "validation", "trainer", "tensorboard")},
    {
        "verification": (
            "record", "units", "align", "prints", "probes", "changes", "masks", "deviation", "catalogue_norms", "catalogue_inputs",
            "catalogue", "catalogue_sizes", "ours", "structure", "search",
            "theirs", "report", "mapping", "naming", "compare", "training",
        ),
    },
    {
        "interop": (
            "foreign", "layout", "llama", "bert", "marian", "torch_nn", "vocabulary", "huggingface", "gguf", "ctranslate2_file", "ctranslate2", "ctranslate2_write", "onnx", "onnx_model", "engine", "convert",
        ),
    },
    {"explorer": ("walk", "machine", "shelf", "api", "generation", "learning", "server", "export")},
    {
        "cli": (
            "show", "lines", "options", "decoding", "progress", "writing", "translate", "generate", "classify", "steps",
            "score", "evaluate", "trace", "count", "shapes", "positions", "compare", "schedule", "verify", "explore", "convert", "new", "check",
            "train", "demo",
            "main",
        ),
    },
]  # fmt: skip
LEVEL = {folder: level for level, folders in enumerate(LEVELS) for folder in folders}
ORDER = {folder: modules for folders in LEVELS for folder, modules in folders.items()}
VERBS = (
    "demo", "new", "check", "train", "translate", "generate", "classify", "steps", "score", "evaluate", "trace", "count",
    "shapes", "positions", "compare", "schedule", "verify", "explore", "convert",
)  # fmt: skip
FRONT = {("__init__",), ("__main__",)}  # the package's own face may import anything


def parts(path: Path) -> tuple[str, ...]:
    return path.relative_to(SOURCE).with_suffix("").parts


def imported(tree: ast.AST) -> set[tuple[str, ...]]:
    """Return the modules of this package that a module imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            folder = SOURCE.parent.joinpath(*node.module.split("."))
            for alias in node.names:
                is_module = (folder / f"{alias.name}.py").is_file()
                names.add(f"{node.module}.{alias.name}" if is_module else node.module)
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return {tuple(name.split(".")[1:]) for name in names if name.split(".")[0] == "glassformer"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: "/".join(parts(path)))
def test_imports_go_down(path: Path) -> None:
    own = parts(path)
    if own in FRONT:
        return
    for other in imported(ast.parse(path.read_text(encoding="utf-8"))):
        if not other:  # the version, for --version
            assert own[0] == "cli"
            continue
        if other[0] == own[0]:
            if own[-1] == "__init__":
                continue
            order = ORDER[own[0]]
            assert order.index(other[1]) < order.index(own[1]), f"{own} imports {other}, which stands later"
        else:
            assert LEVEL[other[0]] < LEVEL[own[0]], f"{own} imports {other}, which stands no lower"


def test_every_module_has_its_place() -> None:
    for path in MODULES:
        own = parts(path)
        if own not in FRONT and own[-1] != "__init__":
            assert own[0] in LEVEL, own
            assert len(own) == 1 or own[1] in ORDER[own[0]], own


def test_budgets() -> None:
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 400, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 60, f"{path.name}: {node.name}"
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in (SOURCE / "model").glob("*.py")) <= 800


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("--version",), ("train", "--help"), ("tran",), ("count", "reversl"), ("schedule", "reversal")],
)
def test_help_and_usage_errors_need_no_torch(arguments: tuple[str, ...]) -> None:
    code = (
        "import sys, atexit\n"
        "atexit.register(lambda: print('torch' in sys.modules))\n"
        f"sys.argv = ['glassformer', *{arguments!r}]\n"
        "from glassformer.cli.main import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "False"


def test_help_lists_every_verb() -> None:
    done = subprocess.run([sys.executable, "-m", "glassformer", "--help"], capture_output=True, text=True, check=True)
    for verb in VERBS:
        assert f" {verb} " in done.stdout
