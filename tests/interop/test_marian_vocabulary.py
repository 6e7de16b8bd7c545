"""Marian's vocabulary: two SentencePiece models and one list of ids, cut as transformers cuts."""

import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from transformers import MarianTokenizer

from glassformer.errors import GlassformerError
from glassformer.interop.convert import convert, read
from glassformer.run import load
from tests.interop.foreign import marian

ENGLISH = ("the cat sat on the mat and looked at a bird", "a small dog runs over the green hill", "birds sing in the old tree",
           "who has seen the wind in the trees", "nobody knows how the cat came in", "the old man reads a book to the dog")  # fmt: skip
GERMAN = ("die Katze saß auf der Matte und sah einen Vogel", "ein kleiner Hund läuft über den grünen Hügel", "Vögel singen im alten Baum",
          "wer hat den Wind in den Bäumen gesehen", "niemand weiß, wie die Katze hereinkam", "der alte Mann liest dem Hund vor")  # fmt: skip


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("marian")
    pieces: dict[str, int] = {"</s>": 0, "<unk>": 1}
    for side, texts in (("source", ENGLISH), ("target", GERMAN)):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts * 4), model_prefix=str(place / side), vocab_size=44, model_type="unigram",
            bos_id=-1, pad_id=-1, eos_id=0, unk_id=1, minloglevel=2,
        )  # fmt: skip
        (place / f"{side}.model").rename(place / f"{side}.spm")
        model = sentencepiece.SentencePieceProcessor(model_file=str(place / f"{side}.spm"))
        for i in range(model.get_piece_size()):
            pieces.setdefault(model.id_to_piece(i), len(pieces))
    pieces[">>deu<<"] = len(pieces)
    pieces["<pad>"] = len(pieces)
    (place / "vocab.json").write_text(json.dumps(pieces))
    torch.manual_seed(0)
    n, pad = len(pieces), len(pieces) - 1
    marian(
        vocab_size=n, decoder_vocab_size=n, pad_token_id=pad, decoder_start_token_id=pad, eos_token_id=0
    ).save_pretrained(place)
    return place


@pytest.fixture(scope="module")
def theirs(directory: Path) -> Any:
    return MarianTokenizer(
        source_spm=str(directory / "source.spm"), target_spm=str(directory / "target.spm"),
        vocab=str(directory / "vocab.json"), source_lang="en", target_lang="de",
    )  # fmt: skip


TEXTS = (
    *ENGLISH,
    "the  cat ",
    "cats and dogs",
    "THE Cat?",
    ">>deu<< the bird",
    "öß",
    "a\u00a0b",
    "東",
    "the 東 cat 12",
    "it's",
)


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses:UserWarning")
@pytest.mark.parametrize("text", TEXTS)
def test_sources(text: str, directory: Path, theirs: Any) -> None:
    run, _ = read(directory)
    assert list(run.writer().prompt(text).source or ()) == theirs(text)["input_ids"]


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses:UserWarning")
@pytest.mark.parametrize("text", GERMAN)
def test_targets(text: str, directory: Path, theirs: Any) -> None:
    run, _ = read(directory)
    ids = theirs(text_target=text)["input_ids"]
    assert [*run.tokenizer.encode(text), run.tokenizer.end_id] == ids
    assert run.tokenizer.decode(ids) == text == theirs.decode(ids, skip_special_tokens=True)


def test_a_run_of_it(directory: Path, tmp_path: Path) -> None:
    """The start token is the padding token, is never written, and all of it comes back from disk."""
    convert(directory, tmp_path / "run")
    run = load(tmp_path / "run")
    ids = json.loads((directory / "vocab.json").read_text())
    assert run.tokenizer.start_id == ids["<pad>"]
    assert run.tokenizer.end_id == ids["</s>"]
    assert run.config.decode.forbidden == ("<s>",)
    written = run.writer({"max_length": 10}).write([run.writer().prompt("the cat")])[0][0]
    assert ids["<pad>"] not in written.ids


@pytest.mark.parametrize("name", ["source.spm", "vocab.json"])
@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_files_that_lie(name: str, how: str, directory: Path, tmp_path: Path) -> None:
    for path in directory.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    if how == "gone":
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:100])
    with pytest.raises(GlassformerError) as caught:
        read(tmp_path)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
