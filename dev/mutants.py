"""Plant known bugs one at a time and see the tests catch each: `make mutants`, or some: `mutants.py learn/ data/`.

A bug that survives means that a test is missing; text that is not found means that this list is out of date.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = (
    "tests/agreement", "tests/model", "tests/data/test_batch.py", "tests/data/test_tasks.py", "tests/test_checkpoint.py",
    "tests/decode/test_beam.py", "tests/decode/test_options.py", "tests/decode/test_score.py",
    "tests/decode/test_parallel.py", "tests/text/test_tokenizer.py", "tests/text/test_lines.py",
)  # fmt: skip
OF_TRAINING = (
    "tests/learn", "tests/test_training_faults.py", "tests/data", "tests/test_messages.py",
    "--ignore", "tests/learn/test_distributed.py",
)  # fmt: skip
OF_PROCESSES = ("tests/learn/test_distributed.py",)
OF_EXPLORING = (
    "tests/inspect", "tests/explorer/test_api.py", "tests/explorer/test_server.py", "tests/explorer/test_export.py",
)  # fmt: skip
OF_EXCHANGE = ("tests/interop",)
OF_KERNELS = ("tests/test_kernels.py",)
OF_VERIFYING = ("tests/verify/test_ready_made.py", "tests/verify")


@dataclass(frozen=True)
class Mutant:
    """One bug: in `file`, `right` becomes `wrong`."""

    name: str
    file: str
    right: str
    wrong: str
    tests: tuple[str, ...] = TESTS


MUTANTS = [
    Mutant("mask row from the wrong end", "model/attention.py", "index[n_keys - n_queries :, None]", "index[:n_queries, None]"),
    Mutant(
        "positions restart at each step",
        "model/transformer.py",
        "positions[:, n_tokens - target.shape[1] :]",
        "positions[:, : target.shape[1]]",
    ),
    Mutant(
        "cross-attention cache not reordered",
        "model/cache.py",
        "key_values.select(memory_rows)",
        "pass",
    ),
    Mutant("future visible by one", "model/attention.py", "index <= index[", "index - 1 <= index["),
    Mutant("padding visible", "model/attention.py", "is_real[:, None, None, :]", "is_real[:, None, None, :].logical_or(is_real.new_ones(()))"),
    Mutant("no 1/√d_k on the explicit path", "model/attention.py", "scores / math.sqrt(self.d_k)", "scores * 1.0"),
    Mutant("keys not rotated", "model/attention.py", "self.rotated_k(rotation.turn(k))", "self.rotated_k(k)"),
    # beyond the seven that an encoder–decoder is known for
    Mutant("key and value heads repeated in the wrong order", "model/attention.py", ".repeat_interleave(n_groups, 1)", ".repeat(1, n_groups, 1, 1)"),
    Mutant("NaN in a row without keys", "model/attention.py", "masked.masked_fill(empty, 0.0).softmax(dim=-1).masked_fill(empty, 0.0)", "masked.softmax(dim=-1)"),
    Mutant("dropout outside training", "model/dropout.py", "not self.training or ", ""),
    Mutant("padding counts as a position", "model/position.py", "(is_real.cumsum(1) - 1).clamp(min=0)", "(is_real.long() * 0 + 1).cumsum(1) - 1"),
    Mutant("which tokens are real not reordered", "model/cache.py", "self.is_real = self.is_real.index_select(0, rows)", "pass"),
    Mutant("new tokens taken for padding", "model/cache.py", "ids.new_ones(batch, n_new", "ids.new_zeros(batch, n_new"),
    Mutant("old tokens taken for padding", "model/cache.py", "ids.new_ones(batch, self.length", "ids.new_zeros(batch, self.length"),
    Mutant("no dropout on sublayers", "model/layer.py", "x + self.dropout(change)", "x + change"),
    Mutant("no dropout on embeddings", "model/transformer.py", "dropped: Tensor = self.dropout(x)", "dropped = x"),
    Mutant("no dropout on hidden numbers", "model/layer.py", "self.w_2(self.dropout(hidden))", "self.w_2(hidden)"),
    Mutant("tests are the first training batch", "data/tasks.py", "np.random.default_rng(TEST_SEED)", "np.random.default_rng([0, 1])"),
    Mutant("a grown cache forgets", "model/cache.py", "self._buffers[i][:, :, :start] = old[:, :, :start]", "pass"),
    Mutant("beams share the wrong memory", "model/attention.py", "q.view(len(k), n, *q.shape[1:]).transpose(1, 2)", "q.view(n, len(k), *q.shape[1:]).transpose(0, 1).transpose(1, 2)"),
    Mutant("watched beams share the wrong memory", "model/attention.py", "x.repeat_interleave(n, 0)", "x.repeat(n, 1, 1, 1)"),
    # the search
    Mutant("the beam stops when enough have ended", "decode/beam.py", "self.finished[-1].score >= bound", "True"),
    Mutant("the bound at the wrong length", "decode/beam.py", "/ max(ends)", "/ min(ends)"),
    Mutant("the bound one token too late", "decode/beam.py", "for n in (length + 1, self.prompt.limit)", "for n in (length + 2, self.prompt.limit)"),
    Mutant("parents are not followed", "decode/beam.py", "width * i + parent", "width * i"),
    Mutant("as many candidates as the beam", "decode/beam.py", "2 * config.beam_size", "config.beam_size"),
    Mutant("cut hypotheses before those that ended", "decode/beam.py", "[*self.finished, *cut]", "[*cut, *self.finished]"),
    Mutant("the end token does not count", "decode/hypothesis.py", "length_penalty(config, len(ids))", "length_penalty(config, max(1, len(ids) - 1))"),
    Mutant("an n-gram may repeat at the very end", "decode/rules.py", "range(len(ids) - self.n + 1)", "range(len(ids) - self.n)"),
    Mutant("min_length one too long", "decode/rules.py", "len(ids) + 1 < self.min_length", "len(ids) < self.min_length"),
    Mutant("no end where nothing is left", "decode/rules.py", ".masked_fill_(nothing_left, 0.0)", ".masked_fill_(nothing_left, -math.inf)"),
    Mutant("watched logits are masked", "decode/state.py", "one.clone() if", "one if"),
    Mutant("top-p without its last token", "decode/sample.py", "before >= share", "before + probabilities >= share"),
    Mutant("what is drawn depends on the batch", "decode/sample.py", "[config.seed, line, sample]", "[config.seed]"),
    Mutant("an ensemble of logarithms", "decode/state.py", ".logsumexp(dim=0) - math.log(len(logits))", ".mean(dim=0)"),
    Mutant("memories stay when sources go", "decode/state.py", "cache.select(chosen, kept)", "cache.select(chosen, None)"),
    Mutant("prompts padded on the right", "decode/state.py", "self._pad(rows, left=True)", "self._pad(rows)"),
    Mutant("the prefix is not scored", "decode/state.py", "[sum(values) for values in forced]", "[0.0 for _ in forced]"),
    Mutant("threads stay halved", "decode/parallel.py", "torch.set_num_threads(n_threads)  # again", "pass  # again"),
    Mutant("the wrong block's token", "decode/rules.py", "* BLOCK + places % BLOCK", "* BLOCK + places % (BLOCK - 1)"),
    # data and training
    Mutant("a mean of means", "learn/learner.py", "torch.autograd.backward(loss * factor)", "torch.autograd.backward(loss / self.objective.count(batch.labels) / len(moved))", OF_TRAINING),
    Mutant("clipped before it is unscaled", "learn/learner.py", "torch._foreach_mul_(self._own_gradients(), 1.0 / self.counters.scale)", "pass", OF_TRAINING),
    Mutant("infinite gradients are taken", "learn/learner.py", "skipped=not math.isfinite(norm + loss)", "skipped=False", OF_TRAINING),
    Mutant("the rate one step late", "learn/trainer.py", "step=progress.step, d_model", "step=max(1, progress.step - 1), d_model", OF_TRAINING),
    Mutant("random numbers go on across steps", "learn/learner.py", "torch.manual_seed(int(seed[0]))", "pass", OF_TRAINING),
    Mutant("Adam's moments forgotten", "learn/learner.py", "self._optimizer.state[p] = state", "pass", OF_TRAINING),
    Mutant("a resumed epoch begins again", "learn/trainer.py", "skip=progress.step_of_epoch", "skip=0", OF_TRAINING),
    Mutant("the moving average forgotten", "learn/learner.py", "value.copy_(as_sharded_as", "(as_sharded_as", OF_TRAINING),
    Mutant("patience forgotten", "learn/trainer.py", "0 if is_best else progress.looks_since_best + 1", "0", OF_TRAINING),
    Mutant("measured with dropout", "learn/learner.py", "yield model.eval()", "yield model.train()", OF_TRAINING),
    Mutant("left in eval mode", "learn/learner.py", "self.model.train()", "pass", OF_TRAINING),
    Mutant("metrics.jsonl not cut back", "learn/keeper.py", "file.truncate(min(", "max(min(", OF_TRAINING),
    Mutant("--from is lost before the first look", "learn/trainer.py", "self._keeper.save_state(learner.tensors(), self._progress)\n        self._keeper.write", "self._keeper.write", OF_TRAINING),
    Mutant("the trial leaves its moments", "learn/learner.py", "self._optimizer.state.clear()", "pass", OF_TRAINING),
    Mutant("the trial changes the weights", "learn/learner.py", "gradient.zero_()", "pass", OF_TRAINING),
    Mutant("the best are the worst", "learn/keeper.py", "pair[0] if less_is_better else -pair[0]", "-pair[0] if less_is_better else pair[0]", OF_TRAINING),
    Mutant("snapshots from the first half", "learn/keeper.py", "if 2 * step > progress.step", "if step", OF_TRAINING),
    Mutant("smoothing on all where others is asked for", "learn/loss.py", "* vocabulary / (vocabulary - 1)", "* 1", OF_TRAINING),
    Mutant("padding has a share of the smoothing", "learn/loss.py", " - minus[:, self.pad_id]", "", OF_TRAINING),
    Mutant("weights of classes do not count", "learn/loss.py", "self.class_weights[asked].sum()", "len(asked)", OF_TRAINING),
    Mutant("the last batch is dropped", "data/plan.py", "while start < len(rows):", "while start + 1 < len(rows):", OF_TRAINING),
    Mutant("every epoch alike", "data/plan.py", "np.random.default_rng([seed, epoch])", "np.random.default_rng([seed])", OF_TRAINING),
    Mutant("the start token is asked for", "data/batch.py", "[IGNORED] * (n_given - 1) + row[n_given:]", "row[1:]", OF_TRAINING),
    Mutant("equal sources on both sides", "data/corpus.py", "source.strip().encode", "(source + str(id(source))).encode", OF_TRAINING),
    Mutant("vocabularies learnt from validation too", "data/corpus.py", "example.source for example in self.read(\"train\")", "example.source for example in chain(self.read(\"train\"), self.read(\"validation\"))", OF_TRAINING),
    Mutant("a lost placeholder is not marked", "messages.py", "placeholders(translation) == placeholders(text)", "True", OF_TRAINING),
    # many processes
    Mutant("the mean of the processes' sums", "learn/learner.py", "self.counters.scale * processes.count /", "self.counters.scale /", OF_PROCESSES),
    Mutant("labels of this process only", "learn/learner.py", "(n_labels,) = processes.sum(sum(self.objective.count(batch.labels) for batch in moved))", "n_labels = sum(self.objective.count(batch.labels) for batch in moved)", OF_PROCESSES),
    Mutant("all processes drop the same", "learn/learner.py", "place=processes.rank + i * processes.count", "place=i", OF_PROCESSES),
    Mutant("a batch too many counts", "data/feed.py", ".silent()", "", OF_PROCESSES),
    Mutant("each validates on its own", "learn/validation.py", "total, n_labels = processes.sum(total, n_labels)", "pass", OF_PROCESSES),
    Mutant("one stops by itself", "learn/trainer.py", "if stops and not", "if self._stop and not", OF_PROCESSES),
    Mutant("a frozen process is waited for", "cli/progress.py", "signal.alarm(PATIENCE)", "pass", OF_PROCESSES),
    # find the bug
    Mutant("hooks of one variant stay for the next", "verification/ours.py", "module._forward_hooks.clear()", "pass", OF_VERIFYING),
    Mutant("theirs is changed", "verification/theirs.py", "found = copy.deepcopy(model, memo)", "found = model", OF_VERIFYING),
    Mutant("closures keep the original", "verification/theirs.py", "vars(module).update(_rebound(vars(module), memo))", "pass", OF_VERIFYING),
    Mutant("random numbers are the same each time", "verification/theirs.py", "torch.manual_seed(self._calls)", "torch.manual_seed(0)", OF_VERIFYING),
    Mutant("norms are as fresh ones", "verification/theirs.py", "tensor.copy_(0.3 * noise + is_gamma)", "tensor.fill_(float(is_gamma))", OF_VERIFYING),
    Mutant("frozen sinusoids are drawn anew", "verification/theirs.py", "if not tensor.requires_grad and _is_sinusoids(tensor)", "if tensor.numel() < 0", OF_VERIFYING),
    Mutant("constants in float32 are differences", "verification/theirs.py", "any(map(_is_rounded, kept))", "False", OF_VERIFYING),
    Mutant("(T, B) is not tried", "verification/theirs.py", "self.time_first = self._is_by_row(probe)", "self.time_first = False", OF_VERIFYING),
    Mutant("padded batches do not count", "verification/search.py", "return max(differences) <= self.tolerance", "return differences[0] <= self.tolerance", OF_VERIFYING),
    Mutant("orders are tried once", "verification/search.py", "while found is not before:", "while before is None:", OF_VERIFYING),
    Mutant("later orders stay as they are", "verification/search.py", "nearer = [self.settled(found) for found in", "nearer = [found for found in", OF_VERIFYING),
    Mutant("two at a time, and no more", "verification/search.py", "if key not in seen:", "if key not in seen and len(found.variant.ways) < 2:", OF_VERIFYING),
    Mutant("nothing hides in the rounding", "verification/search.py", "if _left(best) > ROUNDING:", "if _left(best) > 1:", OF_VERIFYING),
    Mutant("one reading of what theirs is built of", "verification/structure.py", "return [first, second] if fits[0] == fits[1] else [first]", "return [first]", OF_VERIFYING),
    Mutant("what nothing depends on counts", "verification/units.py", "if use.operation.index not in record.live:", "if use.operation.index < 0:", OF_VERIFYING),
    Mutant("rows of heads apart", "verification/align.py", "if not by_head or len(sizes) == 1:", "if True:", OF_VERIFYING),
    Mutant("tables in one order", "verification/align.py", "if all(swapped):", "if False:", OF_VERIFYING),
    Mutant("of two norms the last is ours", "verification/align.py", "or (is_left_out and total == best[i + di, j + dj])", "", OF_VERIFYING),
    Mutant("every added vector is a bias", "verification/units.py", "if fits and _comes_from(unit.operation, found[i].operation.index, operations):", "if fits:", OF_VERIFYING),
    Mutant("a mapping is not heeded", "verification/ours.py", "found.places.update(self.fixed)", "pass", OF_VERIFYING),
    Mutant("a dead encoder is aligned", "verification/changes.py", "shorter_encoder(0, normed=False)(model)", "pass", OF_VERIFYING),
    Mutant("the first way of a deviation is the only one", "verification/search.py", "if other is not way:", "if False:", OF_VERIFYING),
    Mutant("gate and branch are told apart by their names", "verification/compare.py", 'cause.name == "activation-missing"', "False", OF_VERIFYING),
    Mutant("all weights are used", "verification/compare.py", "used[use.places.ravel()] = True", "used[:] = True", OF_VERIFYING),
    Mutant("what goes into a formula is its place", "verification/compare.py", "if one.index not in known][:NEXT]", "if one.index >= 0][:NEXT]", OF_VERIFYING),
    # on a CPU
    Mutant("keys that nobody may see count", "kernels.py", "F.pad(~allowed, (0, more), value=True)", "F.pad(~allowed, (0, more), value=False)", OF_KERNELS),
    Mutant("a row that sees nothing is NaN", "kernels.py", "if empty.any():", "if False:", OF_KERNELS),
    Mutant("the gradient of QK is not scaled", "kernels.py", "of_scores.mul_(q.shape[-1] ** -0.5).to", "of_scores.to", OF_KERNELS),
    Mutant("softmax has the gradient of exp", "kernels.py", "product.sub_(weights * product.sum(dim=-1, keepdim=True))", "product", OF_KERNELS),
    Mutant("the label's share is not smoothed", "kernels.py", "p.new_full(at.shape, smoothing - 1)", "p.new_full(at.shape, -1.0)", OF_KERNELS),
    Mutant("ignored rows teach", "kernels.py", "rows.index_fill_(0, ignored.nonzero()[:, 0], 0.0)", "pass", OF_KERNELS),
    Mutant("what is kept is not scaled", "kernels.py", "kept.mul_(LEVELS / (LEVELS - dropped))", "kept", OF_KERNELS),
    # weights of others
    Mutant("rows are not turned for Hugging Face", "interop/huggingface.py", 'turned(ours, model, "halves")', "ours", OF_EXCHANGE),
    Mutant("pairs turned the wrong way", "interop/layout.py", "torch.cat([rows[:, 0::2], rows[:, 1::2]], dim=1)", "_to_pairs(rows)", OF_EXCHANGE),
    Mutant("keys before queries", "interop/torch_nn.py", 'enumerate("qkv")', 'enumerate("kqv")', OF_EXCHANGE),
    Mutant("unknown tensors are dropped", "interop/layout.py", "    if unused:", "    if False:", OF_EXCHANGE),
    Mutant("unknown settings are dropped", "interop/foreign.py", "if name not in self._read and", "if False and", OF_EXCHANGE),
    Mutant("a table of its own passes for sines", "interop/marian.py", "(tensor - right).abs().max() > 1e-3", "False", OF_EXCHANGE),
    Mutant("no tensor is checked for NaN", "interop/layout.py", "if not tensor.isfinite().all():", "if False:", OF_EXCHANGE),
    Mutant("ε as float32 has it", "interop/gguf.py", "return float(str(np.float32(value)))", "return float(value)", OF_EXCHANGE),
    Mutant("digits go with the blanks before them", "interop/vocabulary.py", '"smollm": True', '"smollm": False', OF_EXCHANGE),
    Mutant("a message may end the message", "text/chat.py", 'MARKED.sub(lambda found: messages[int(found[1])]["content"], piece)', "piece", OF_EXCHANGE),
    Mutant("templates work without a sandbox", "text/chat.py", "ImmutableSandboxedEnvironment(", "__import__('jinja2').Environment(", OF_EXCHANGE),
    Mutant("integers are not scaled", "interop/ctranslate2.py", "return numbers / (factor[:, None] if factor.ndim else factor)", "return numbers", OF_EXCHANGE),
    Mutant("CTranslate2 rounds our own weights", "interop/ctranslate2_write.py", "tensor.float().clone().numpy()", "tensor.float().contiguous().numpy()", OF_EXCHANGE),
    Mutant("the end of a file is not seen", "interop/ctranslate2_file.py", "if self.place + n > len(self._raw):", "if False:", OF_EXCHANGE),
    Mutant("parts of a stacked matrix begin at the same row", "interop/layout.py", "found[name] = tensor[start : start + shape[0]]", "found[name] = tensor[: shape[0]]", OF_EXCHANGE),
    Mutant("gate and up exchanged", "interop/ctranslate2.py", 'f"{theirs}/ffn/linear_0_noact" if gated else f"{theirs}/ffn/linear_0"', 'f"{theirs}/ffn/linear_0" if gated else f"{theirs}/ffn/linear_0"', OF_EXCHANGE),
    Mutant("learned positions from row 0", "interop/ctranslate2_write.py", "theirs[place][config.positions.first :]", "theirs[place]", OF_EXCHANGE),
    Mutant("CTranslate2's own patience", "interop/engine.py", "PATIENCE = 2.0", "PATIENCE = 1.0", OF_EXCHANGE),
    Mutant("prompts of all lengths at once", "interop/engine.py", "(prompt.limit, len(prompt.read))", "(prompt.limit, 0)", OF_EXCHANGE),
    Mutant("new keys before old ones", "interop/onnx.py", "torch.cat([self._pair[0], keys], dim=2)", "torch.cat([keys, self._pair[0]], dim=2)", OF_EXCHANGE),
    Mutant("the past is all real", "interop/onnx_model.py", '"past_is_real": flags[:, :n_past]', '"past_is_real": torch.ones_like(flags[:, :n_past])', OF_EXCHANGE),
    Mutant("beams read other sources", "interop/onnx_model.py", "tensor.repeat_interleave(n, 0)", "tensor.repeat(n, *[1] * (tensor.ndim - 1))", OF_EXCHANGE),
    Mutant("the memory is not reordered", "interop/onnx_model.py", "tuple(tensor[rows] for tensor in self.pairs)", "self.pairs", OF_EXCHANGE),
    Mutant("graphs of another model", "interop/onnx_model.py", "if (inputs, [one.name for one in session.get_outputs()]) != (graph.inputs, graph.outputs):", "if False:", OF_EXCHANGE),
    Mutant("settings may contradict the modules", "interop/torch_nn.py", "elif name in fields and fields[name] != value:", "elif False:", OF_EXCHANGE),
    Mutant("what a limit has cut may come first", "interop/engine.py", '(hypothesis.stopped != "end", -hypothesis.score)', "-hypothesis.score", OF_EXCHANGE),
    Mutant("where the files were is told", "interop/engine.py", '"folder": "", ', "", OF_EXCHANGE),
    Mutant("half a directory stays", "files.py", "shutil.rmtree(temporary, ignore_errors=True)", "pass", OF_EXCHANGE),
    Mutant("CTranslate2 does not know the frame", "interop/ctranslate2_write.py", "before == [start], after == [end]", "False, False", OF_EXCHANGE),
    Mutant("the paths of who wrote a graph stay in it", "interop/onnx.py", "node.metadata_props.clear()", "pass", OF_EXCHANGE),
    Mutant("layers that differ", "interop/torch_nn.py", "if value != found[0][name]:", "if False:", OF_EXCHANGE),
    Mutant("sources are not framed", "writer.py", "return tokenizer.framed(ids) if framed and ids else ids, n_cut", "return ids, n_cut", OF_EXCHANGE),
    Mutant("bytes without a token are lost", "text/tokenizer.py", "if not self._missing.isdisjoint(raw):", "if False:", OF_EXCHANGE),
    # see through it
    Mutant("the origin of scaled scores says 1", "inspect/origin.py", 'settings={"factor": k**-0.5}', 'settings={"factor": 1.0}', OF_EXPLORING),
    Mutant("shared heads are not told", "inspect/origin.py", "config.n_heads // config.kv_heads", "1", OF_EXPLORING),
    Mutant("cross-attention reads the target", "inspect/origin.py", '"memory" if sublayer == "cross_attention" else entered', "entered", OF_EXPLORING),
    Mutant("bias left out", "inspect/origin.py", 'if bias else (f"{name}.weight",)', 'if not bias else (f"{name}.weight",)', OF_EXPLORING),
    Mutant("other pages are answered", "explorer/server.py", 'if strange or (origin is not None and origin != b"http://" + host):', "if strange:", OF_EXPLORING),
    Mutant("a snapshot shows another's tensors", "explorer/shelf.py", "self._tensors.get((snapshot, read, group), made)", "self._tensors.get((read, group), made)", OF_EXPLORING),
    Mutant("a snapshot writes what another wrote", "explorer/shelf.py", "self._inputs.get((source, target, snapshot)", "self._inputs.get((source, target)", OF_EXPLORING),
    Mutant("a part past the end", "explorer/api.py", "if not 0 <= first < last <= size or", "if not 0 <= first < last or", OF_EXPLORING),
    Mutant("chances that do not sum to 1", "explorer/generation.py", "float(drawn[i] / total)", "float(drawn[i])", OF_EXPLORING),
    Mutant("a text that ends the script", "explorer/export.py", '.replace("<", "\\\\u003c")', "", OF_EXPLORING),
]  # fmt: skip


def survives(mutant: Mutant) -> bool | None:
    """Return whether the tests pass with the bug in place; None where its text is not in the source once."""
    with tempfile.TemporaryDirectory() as directory:
        source = Path(shutil.copytree(ROOT / "src", Path(directory) / "src"))
        path = source / "glassformer" / mutant.file
        text = path.read_text(encoding="utf-8")
        if text.count(mutant.right) != 1:
            return None
        path.write_text(text.replace(mutant.right, mutant.wrong), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutant.tests],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode not in (0, 1):
        sys.exit(f"the tests did not run with {mutant.name!r}:\n{done.stdout}{done.stderr}")
    caught = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    print(f"{mutant.name}: {caught[0].split(' - ')[0] if caught else 'SURVIVED'}", flush=True)
    return done.returncode == 0


def main(parts: list[str]) -> None:
    chosen = [mutant for mutant in MUTANTS if not parts or any(part in mutant.file for part in parts)]
    with ThreadPoolExecutor(2) as pool:
        results = dict(zip([mutant.name for mutant in chosen], pool.map(survives, chosen), strict=True))
    stale = [name for name, survived in results.items() if survived is None]
    alive = [name for name, survived in results.items() if survived]
    if stale or alive:
        sys.exit(f"survived: {alive or 'none'}; not found in the source: {stale or 'none'}")
    print(f"all {len(results)} bugs were caught")


if __name__ == "__main__":
    main(sys.argv[1:])
