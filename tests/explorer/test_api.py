"""What the page is told: the model's own numbers, for every kind of model, and a sentence where something is wrong."""

from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassformer.config import preset
from glassformer.errors import ConfigError, DataError, GlassformerError
from glassformer.explorer import api, generation, learning, shelf
from glassformer.explorer.machine import Column, machine
from glassformer.explorer.shelf import Kept, Shelved, open_run
from glassformer.explorer.walk import steps
from glassformer.inspect.origin import origins
from glassformer.inspect.trace import taps
from glassformer.model.transformer import Transformer
from tests.agreement.variants import CORE, build, config, drawn
from tests.conftest import random_run

SOURCE = "c a b e d"
REQUEST = api.Request(SOURCE)


def blocks(columns: list[Column]) -> list[Any]:
    return [
        block
        for column in columns
        for block in (*column.before, *(b for layer in column.layers for one in layer for b in one.blocks), *column.after)
    ]  # fmt: skip


@pytest.mark.parametrize("core", CORE, ids=lambda core: "-".join(map(str, core)))
def test_machine_and_walk_of_every_variant(core: Any) -> None:
    """Each block leads to a step and each step to a block; no tensor is strange, none is forgotten, and all weights are somewhere."""
    for other in drawn(*core):
        model = build(config(core, other))
        names = set(taps(model))
        drawing = machine(model.config, {name: one.numel() for name, one in model.named_parameters()})
        walk = steps(model.config)
        ids = [step.id for step in walk]
        boxes = blocks(drawing)
        assert len(set(ids)) == len(ids)
        assert len({box.id for box in boxes}) == len(boxes)
        assert {box.step for box in boxes} <= set(ids)
        assert {step.block for step in walk} <= {box.id for box in boxes}
        assert {name for box in boxes for name in (box.tensor, *box.reads) if name} <= names
        shown = {panel.tensor for step in walk for panel in step.panels}
        assert shown <= names
        # what is not shown is another name for what is, or for what goes on from it: a layer's output is its last sum
        assert all(origins(model.config)[name].operation in ("same", "scale", "sum") for name in names - shown)
        assert not [name for name in names - shown if len(origins(model.config)[name].reads) > 1]
        assert sum(box.parameters for box in boxes) == sum(one.numel() for one in model.parameters())


def test_what_is_there(toy: Shelved) -> None:
    (run,) = api.about([toy])["runs"]
    assert (run["kind"], run["parameters"], run["example"]) == ("encoder-decoder", 234_304, SOURCE)
    assert run["snapshots"] == toy.snapshots
    assert len(toy.snapshots) > 3


def test_walk(toy: Shelved) -> None:
    walk = api.walk(toy, REQUEST)
    assert [(one["token"], one["id"], one["special"]) for one in walk["source"]] == [
        ("c", 5, False), ("a", 3, False), ("b", 4, False), ("e", 7, False), ("d", 6, False),
    ]  # fmt: skip
    assert walk["target"][0] == {"token": "<s>", "id": 1, "special": True}
    assert walk["written"] == toy.run.translate(SOURCE)
    assert len(walk["vocabulary"]) == 13
    trace = toy.run.trace(SOURCE)
    assert {name: tuple(told["shape"]) for name, told in walk["tensors"].items()} == {
        name: seen.shape for name, seen in trace.items()
    }
    assert len(walk["tensors"]["decoder.layers.1.cross_attention.weights"]["reads"]) == 1


def test_given_targets(toy: Shelved) -> None:
    walk = api.walk(toy, api.Request(SOURCE, "d e"))
    assert [one["token"] for one in walk["target"]] == ["<s>", "d", "e"]
    assert walk["written"] is None
    assert walk["tensors"]["decoder.layers.0.cross_attention.weights"]["shape"] == (1, 4, 3, 5)


def test_tensors_are_those_of_the_model(toy: Shelved) -> None:
    for name, seen in toy.run.trace(SOURCE).items():
        np.testing.assert_array_equal(api.tensor(toy, REQUEST, name).values, np.asarray(seen))


def test_layer_by_layer(toy: Shelved, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model too large to be recorded at once gives the same numbers."""
    monkeypatch.setattr(shelf, "WHOLE", 0)
    fresh = Shelved(toy.run, "toy")
    for name, seen in toy.run.trace(SOURCE).items():
        np.testing.assert_allclose(api.tensor(fresh, REQUEST, name).values, np.asarray(seen), rtol=1e-4, atol=1e-5)


def test_parts_of_tensors(toy: Shelved) -> None:
    name = "encoder.layers.0.self_attention.q"
    whole = api.tensor(toy, REQUEST, name).values
    part = api.tensor(toy, REQUEST, name, "0,1:3,:,15")
    assert part.shape == (1, 2, 5, 1)
    np.testing.assert_array_equal(part.values, whole[:, 1:3, :, 15:])
    weight = api.parameter(toy, "output.weight", "4,:")
    np.testing.assert_array_equal(weight.values[0], toy.run.model.encoder.embedding.tokens.weight[4].detach())  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("0", "has 4 axes"),
        ("0,4,:,:", "'4' is not to be had, its 4 places are 0 to 3"),
        ("0,:,:,2:1", "'2:1' is not to be had"),
        ("0,:,:,x", "'x' is no index"),
        ("0,:,:,", "'' is not to be had"),
        ("0,:,:,-1", "'-1' is not to be had"),
    ],
)
def test_parts_that_are_not_there(toy: Shelved, at: str, words: str) -> None:
    with pytest.raises(DataError, match=words.replace("(", r"\(")):
        api.tensor(toy, REQUEST, "encoder.layers.0.self_attention.q", at)


def test_too_much(toy: Shelved, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "MOST", 10)
    with pytest.raises(DataError, match="320 numbers of memory are too many"):
        api.tensor(toy, REQUEST, "memory")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (api.Request(" "), "the text is blank"),
        (api.Request("c a x"), "'x'"),
        (api.Request(SOURCE, snapshot=17), "no snapshot of step 17; there are: 0, "),
        (api.Request("a " * 3000), "3000 tokens; the explorer shows 2048 at most"),
    ],
)
def test_inputs_that_cannot_be_shown(toy: Shelved, asked: api.Request, words: str) -> None:
    with pytest.raises(DataError, match=words):
        api.walk(toy, asked)


def test_unknown_names(toy: Shelved) -> None:
    with pytest.raises(DataError, match="no tensor 'memories'"):
        api.tensor(toy, REQUEST, "memories")
    with pytest.raises(DataError, match=r"no weight 'w'"):
        api.parameter(toy, "w")


def test_snapshots(toy: Shelved) -> None:
    """Each has its own numbers; before training the cross-attention is blurred."""
    name = "decoder.layers.1.cross_attention.weights"
    early, late = (
        api.tensor(toy, api.Request(SOURCE, "d e b a c", step), name).values.mean(axis=1)[0] for step in (0, None)
    )
    assert early.max() < 0.5
    assert late[0, 4] > 0.9
    assert not np.array_equal(
        api.parameter(toy, "output.weight", snapshot=0).values, api.parameter(toy, "output.weight").values
    )


def test_the_most_likely_tokens(toy: Shelved, classifier: Shelved) -> None:
    rows = api.best(toy, REQUEST)
    assert [row[0]["token"] for row in rows] == ["d", "e", "b", "a", "c", "</s>"]
    (row,) = api.best(classifier, api.Request("a ticket"))
    assert row[0]["token"] == classifier.run.classify("a ticket").label
    assert sum(one["probability"] for one in row) == pytest.approx(1)


def test_a_decoder_alone(microscope: Shelved) -> None:
    walk = api.walk(microscope, api.Request("8 9 ="))
    assert walk["source"] is None
    assert [one["token"] for one in walk["target"]] == ["8", "9", "="]
    sizes = {name: walk["tensors"][f"decoder.layers.0.{name}"]["shape"] for name in ("self_attention.q", "ffn.hidden")}
    assert sizes == {"self_attention.q": (1, 1, 3, 6), "ffn.hidden": (1, 3, 12)}
    assert walk["tensors"]["logits"]["shape"] == (1, 3, 42)
    with pytest.raises(DataError, match="only an encoder–decoder has a target"):
        api.walk(microscope, api.Request("8 9 =", "eighty"))


def test_shapes_beside(toy: Shelved, microscope: Shelved) -> None:
    assert api.shapes(toy, 7, 8)["decoder.layers.0.cross_attention.weights"] == (1, 4, 8, 7)
    assert api.shapes(microscope, 1, 5)["logits"] == (1, 5, 42)
    with pytest.raises(DataError, match="1 to 2048 of each side"):
        api.shapes(toy, 0, 5)


def test_names(toy: Shelved) -> None:
    assert api.names(toy, 3, 6) == ["a", "b", "c"]
    with pytest.raises(DataError, match="there are 0 to 13"):
        api.names(toy, 3, 14)


def test_many_at_once(toy: Shelved) -> None:
    """Requests come in threads, and hooks see whatever passes: none gets another one's numbers."""
    texts = ["c a b", "j i h g", "a b c d e", "f f"]
    alone = Shelved(toy.run, "alone")
    expected = [api.tensor(alone, api.Request(text), "logits").values for text in texts]
    translated = [toy.run.translate(text) for text in texts]  # now: the run itself waits for no lock
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            fresh = Shelved(toy.run, "fresh")
            written = [pool.submit(generation.generation, fresh, api.Request(text), {"beam_size": 1}) for text in texts]
            seen = [pool.submit(api.tensor, fresh, api.Request(text), "logits") for text in texts]
            for text, one, two, right in zip(translated, written, seen, expected, strict=True):
                np.testing.assert_allclose(two.result().values, right, atol=1e-5)
                assert one.result()["text"] == text
                logits = [
                    [c["logit"] for c in sorted(step["candidates"], key=lambda c: c["id"])]
                    for step in one.result()["steps"]
                ]
                np.testing.assert_allclose(logits, right[0], atol=1e-4)


def test_they_take_turns(toy: Shelved) -> None:
    """What runs the model waits for what else does."""
    with ThreadPoolExecutor(3) as pool:
        with toy.lock:
            asked = [
                pool.submit(generation.generation, toy, REQUEST, {"beam_size": 1}),
                pool.submit(learning.teaching, toy, REQUEST),
                pool.submit(api.tensor, toy, api.Request("j j i"), "memory"),
            ]
            assert not wait(asked, timeout=1).done
        assert all(one.result() is not None for one in asked)


def test_the_end_of_a_learned_table(tmp_path: Path) -> None:
    """A model that does not stop writes to the end of its table; what it wrote can be looked at."""
    positions = {"kind": "learned", "size": 12}
    run = open_run(random_run(tmp_path / "run", "encoder-decoder", positions=positions))
    walk = api.walk(run, api.Request("abc"))
    assert len(walk["target"]) <= 12
    assert api.tensor(run, api.Request("abc"), "logits").shape[1] == len(walk["target"])
    assert run.run.trace("abc")["logits"].shape[1] == len(walk["target"])


def test_what_is_cut_is_said(tmp_path: Path) -> None:
    run = open_run(random_run(tmp_path / "run", "encoder", positions={"kind": "learned", "size": 8}))
    with pytest.raises(DataError, match="learned positions end after 8"):
        api.walk(run, api.Request("a long ticket"))
    assert api.walk(run, api.Request("ticket"))["n_cut"] == 0


def test_tokens_are_what_they_stand_for(random_runs: dict[str, Path]) -> None:
    walk = api.walk(open_run(random_runs["decoder"]), api.Request("a é\n"))
    assert [one["token"] for one in walk["target"] if not one["special"]] == ["a", " ", "Ã", "©", "\n"]


class TestGeneration:
    def test_greedy(self, toy: Shelved) -> None:
        """Step k shows token k, with the probabilities and looks of the model without a cache."""
        found = generation.generation(toy, REQUEST, {"beam_size": 1})
        assert [step["chosen"]["token"] for step in found["steps"]] == ["d", "e", "b", "a", "c", "</s>"]
        assert (found["text"], found["stopped"]) == ("d e b a c", "end")
        trace = toy.run.trace(SOURCE)
        weights = np.asarray(trace["decoder.layers.1.cross_attention.weights"])[0].mean(0)
        probabilities, last = np.asarray(trace["probabilities"])[0], np.asarray(trace["decoder.output"])[0]
        for k, step in enumerate(found["steps"]):
            by_id = sorted(step["candidates"], key=lambda one: one["id"])
            np.testing.assert_allclose([one["probability"] for one in by_id], probabilities[k], atol=1e-5)
            np.testing.assert_allclose(step["looked"]["source"], weights[k], atol=1e-5)
            np.testing.assert_allclose(step["last_row"], last[k], atol=1e-4)
            assert [one["chance"] for one in by_id].count(1.0) == 1

    def test_sampling(self, toy: Shelved) -> None:
        decode = {"sample": True, "temperature": 2.0, "top_k": 3, "seed": 1, "beam_size": 1}
        found = generation.generation(toy, REQUEST, decode)
        for step in found["steps"]:
            kept = [one for one in step["candidates"] if one["kept"]]
            assert len(kept) == 3
            assert sum(one["chance"] for one in kept) == pytest.approx(1)
            ranked = sorted(step["candidates"], key=lambda one: -one["logit"])
            assert {one["id"] for one in ranked[:3]} == {one["id"] for one in kept}
            assert kept[0]["tempered_logit"] == kept[0]["logit"] / 2
            assert step["chosen"]["id"] in {one["id"] for one in kept}
        again = generation.generation(toy, REQUEST, decode)
        assert again["text"] == found["text"]

    def test_beam(self, toy: Shelved) -> None:
        decode = {"beam_size": 4, "n_best": 4}
        found = generation.generation(toy, REQUEST, decode)
        writer = toy.run.writer(decode)
        record, results = writer.record(writer.prompt(SOURCE, number=1))
        assert [[one["token"] for one in step] for step in found["search"]] == [
            [one.token for one in step] for step in record.steps
        ]
        assert [one["text"] for one in found["results"]] == [one.text for one in results]
        assert found["stopped"] == record.stopped

    def test_large_vocabularies(self, tmp_path: Path) -> None:
        big = open_run(random_run(tmp_path / "big", "decoder", words=" ".join(f"w{i}" for i in range(700))))
        found = generation.generation(big, api.Request("w1 w2"), {"max_length": 2})
        (step, *_) = found["steps"]
        assert len(step["candidates"]) == 50
        assert step["not_shown"] == big.run.tokenizer.size - 50
        assert step["rest"] + sum(one["probability"] for one in step["candidates"]) == pytest.approx(1)

    def test_limits(self, microscope: Shelved, monkeypatch: pytest.MonkeyPatch) -> None:
        found = generation.generation(microscope, api.Request("8 9 ="), {"max_length": 2, "forbidden": ["<eos>"]})
        assert (len(found["steps"]), found["stopped"]) == (2, "limit")
        monkeypatch.setattr(generation, "MOST_STEPS", 1)
        found = generation.generation(microscope, api.Request("8 9 ="), {"min_length": 5})
        assert (len(found["steps"]), found["stopped"]) == (1, "page")

    def test_caps(self, toy: Shelved) -> None:
        with pytest.raises(DataError, match="beam_size=5000 is more than the explorer shows: 32"):
            generation.generation(toy, REQUEST, {"beam_size": 5000})

    def test_what_does_not_write(self, classifier: Shelved) -> None:
        with pytest.raises(GlassformerError, match="an encoder-only model does not write"):
            generation.generation(classifier, api.Request("a ticket"))

    def test_settings_that_do_not_exist(self, toy: Shelved) -> None:
        with pytest.raises(ConfigError, match="beams"):
            generation.generation(toy, REQUEST, {"beams": 4})


class TestLearning:
    def test_curves(self, toy: Shelved) -> None:
        found = learning.training(toy)
        assert [look["step"] for look in found["looks"]][-1] == 800
        assert found["floor"] == pytest.approx(0.537, abs=1e-3)
        assert found["metric"] == "exact_match"
        assert max(rate for _, rate in found["rates"]) == pytest.approx(0.00625, rel=0.01)
        assert found["averaged"]["steps"] == [500, 600, 700, 800]

    def test_without_a_record(self, classifier: Shelved) -> None:
        assert learning.training(classifier)["looks"] == []

    def test_one_place_apart(self, toy: Shelved, microscope: Shelved) -> None:
        found = learning.teaching(toy, REQUEST)
        assert [one["token"] for one in found["x"]] == ["<s>", "d", "e", "b", "a", "c"]
        assert [one["token"] for one in found["y"]] == ["d", "e", "b", "a", "c", "</s>"]
        assert all(found["counted"])
        found = learning.teaching(microscope, api.Request("4 2 7 =", "four hundred twenty seven"))
        assert [one["token"] for one in found["x"]] == ["4", "2", "7", "=", "four", "hundred", "twenty", "seven"]
        assert [one["token"] for one in found["y"]][-1] == "<eos>"
        assert found["counted"] == [False] * 3 + [True] * 5

    def test_positions(self, toy: Shelved, microscope: Shelved) -> None:
        found = learning.positions(toy.run.config.model, rows=3, pair=5, by=3)
        np.testing.assert_allclose(found["table"][1][:4], [0.841, 0.540, 0.682, 0.732], atol=5e-4)
        assert found["waves"][10][2] == pytest.approx(111.7, abs=0.1)
        for _, turned, later in found["shift"]["rows"]:
            np.testing.assert_allclose(turned, later, atol=1e-9)
        assert learning.positions(microscope.run.config.model) == {"kind": "learned"}
        rotary = learning.positions(preset("smollm2-135m").model, rows=2)
        assert len(rotary["table"][0]) == 32
        assert "shift" not in rotary


def test_parameters(toy: Shelved) -> None:
    found = api.parameters(toy)
    assert found["total"] == found["closed_form"] == 234_304
    assert len(found["tied"][0]) == 3


def test_what_is_kept() -> None:
    made: list[int] = []

    def make(i: int) -> int:
        made.append(i)
        return i

    kept: Kept[int] = Kept(2, lambda _: 1)
    for i in (1, 2, 1, 3, 1, 2):
        assert kept.get(i, lambda i=i: make(i)) == i  # type: ignore[misc]
    assert made == [1, 2, 3, 2]  # 2 had to leave for 3, as 1 was used later


def test_the_explorer_changes_nothing(toy: Shelved) -> None:
    before = {name: one.clone() for name, one in toy.run.model.state_dict().items()}
    api.walk(toy, REQUEST)
    api.tensor(toy, REQUEST, "logits")
    generation.generation(toy, REQUEST, {"beam_size": 1})
    generation.generation(toy, REQUEST, {"beam_size": 2})
    model = toy.run.model
    assert isinstance(model, Transformer)
    assert all(bool((before[name] == one).all()) for name, one in model.state_dict().items())
    assert not any(tap.watched for tap in taps(model).values())
