// What is worth saying about the numbers of a step, in one sentence each; every number is read from a tensor.

import type { Step, Token } from "./contract";
import { brief, token } from "./format";
import type { Numbers } from "./numbers";

/** The share of the hidden numbers of each token that the activation made 0. */
export function zeros(hidden: Numbers): number[] {
  const { rows, columns, at } = hidden.matrix(0);
  return Array.from({ length: rows }, (_, r) => {
    let n = 0;
    for (let c = 0; c < columns; c++) if (at(r, c) === 0) n++;
    return n / columns;
  });
}

/** The smallest and the largest weight of one head that is not hidden. */
export function range(weights: Numbers, masked: Numbers, head: number): [number, number] {
  const { rows, columns, at } = weights.matrix(0, head);
  let low = Infinity;
  let high = -Infinity;
  for (let r = 0; r < rows; r++)
    for (let c = 0; c < columns; c++) {
      if (masked.at(0, head, r, c) === -Infinity) continue;
      low = Math.min(low, at(r, c));
      high = Math.max(high, at(r, c));
    }
  return [low, high];
}

/** Where each row of the weights, the mean of their heads, is largest. */
export function peaks(weights: Numbers): { column: number; weight: number }[] {
  const [, heads, rows, columns] = weights.shape as [number, number, number, number];
  return Array.from({ length: rows }, (_, r) => {
    let best = { column: 0, weight: -1 };
    for (let c = 0; c < columns; c++) {
      let all = 0;
      for (let h = 0; h < heads; h++) all += weights.at(0, h, r, c);
      if (all / heads > best.weight) best = { column: c, weight: all / heads };
    }
    return best;
  });
}

export async function facts(
  step: Step,
  load: (name: string) => Promise<Numbers>,
  given: { rows: Token[]; activation: string; head: number },
): Promise<string[]> {
  const of = (ending: string): string | undefined => step.panels.find((one) => one.tensor.endsWith(ending))?.tensor;
  const hidden = of("ffn.hidden");
  if (hidden && given.activation === "relu") {
    const shares = zeros(await load(hidden));
    const first = given.rows[0] ? `${token(given.rows[0].token)}'s` : "the first token's";
    const mean = shares.reduce((a, b) => a + b, 0) / shares.length;
    return [`ReLU sets ${(100 * shares[0]!).toFixed(1)} % of ${first} hidden numbers to 0, ${(100 * mean).toFixed(1)} % of all.`];
  }
  const weights = of("attention.weights");
  if (weights) {
    const [w, m] = await Promise.all([load(weights), load(weights.replace(/weights$/, "masked"))]);
    const [low, high] = range(w, m, Math.min(given.head, w.shape[1]! - 1));
    return [`In head ${given.head + 1} the weights that are not hidden lie between ${brief(low)} and ${brief(high)}.`];
  }
  return [];
}
