"""The one entrance: prompts in, the best hypotheses of each out, by the way that the settings name."""

from collections.abc import Sequence

from glassformer.config.run import DecodeConfig
from glassformer.decode.beam import Record, beam
from glassformer.decode.greedy import write
from glassformer.decode.hypothesis import BLANK, Hypothesis, Prompt
from glassformer.decode.rules import Rules
from glassformer.decode.state import Model


def search(
    models: Sequence[Model],
    prompts: Sequence[Prompt],
    rules: Rules,
    config: DecodeConfig,
    *,
    records: Sequence[Record] | None = None,
) -> list[list[Hypothesis]]:
    """Write from each prompt; a blank one gives a blank hypothesis.

    Args:
        models: One model in eval mode, or several that write the same vocabulary: their probabilities are averaged.
        prompts: What to write from, of any lengths.
        rules: Which tokens may come.
        config: The way: sampling, a beam, or greedy (a beam of 1), and the length penalty.
        records: For a beam of 2 or more: one for each prompt, to be filled with what the search did.

    Returns:
        For each prompt its hypotheses, the best score first: `n_best`, or fewer where there are no more.

    Raises:
        DecodingError: The models do not write, or a limit leaves no room for a token.

    """
    filled = [i for i, prompt in enumerate(prompts) if not prompt.is_blank]
    results: list[list[Hypothesis]] = [[BLANK] for _ in prompts]
    if not filled:
        return results
    chosen = [prompts[i] for i in filled]
    if config.beam_size == 1:
        found = write(models, chosen, rules, config)
    else:
        kept = None if records is None else [records[i] for i in filled]
        found = beam(models, chosen, rules, config, records=kept)
    for i, hypotheses in zip(filled, found, strict=True):
        results[i] = hypotheses
    return results
