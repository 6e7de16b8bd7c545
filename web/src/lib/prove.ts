// One cell, computed again on this page from the numbers that it was made of.

import type { TensorInfo, Token } from "./contract";
import type { Numbers } from "./numbers";

/** Reads a part of a tensor or of a weight: for each axis an index, a range, or ":". */
export type Read = (name: string, at: string) => Promise<Numbers>;

export interface Term {
  left: number;
  right?: number;
  label: string; // what the term is of
}

/** A row, a column or a cell that the cell was made of: null as an index stands for the whole axis. */
export interface Lit {
  tensor: string;
  index: (number | null)[];
}

export interface Proof {
  value: number; // computed here
  stored: number;
  size: number; // sum of the sizes of the terms
  right: boolean;
  words: string; // how it is computed
  sign: "×" | "+" | "";
  terms: Term[];
  results: { name: string; value: number }[]; // what stands between the terms and the value
  lit: Lit[];
}

const TOLERANCE = 1e-5; // of the sum of the terms' sizes

interface Asked {
  name: string;
  info: TensorInfo;
  index: number[];
  stored: number;
  tensor: Read;
  weight: Read;
  tokens: Token[]; // of the side that the tensor belongs to
}

type Made = Omit<Proof, "stored" | "right">;

export async function prove(asked: Asked): Promise<Proof> {
  const made = await (OPERATIONS[asked.info.operation] ?? same)(asked);
  const apart = Math.abs(made.value - asked.stored);
  const right = made.value === asked.stored || apart <= TOLERANCE * made.size;
  return { ...made, stored: asked.stored, right };
}

const OPERATIONS: Record<string, (asked: Asked) => Promise<Made>> = {
  lookup, scale, position, sum, linear, rotate, product, mask, softmax, mix, join, layernorm, rmsnorm, activation,
  multiply, same, pool,
};

const own = (index: number[]): string => index.join(",");

async function lookup({ info, index, weight, tokens }: Asked): Promise<Made> {
  const [, t, d] = index as [number, number, number];
  const { row, first } = info.settings as { row?: number; first?: number };
  const place = row ?? (first === undefined ? tokens[t]!.id : t + first);
  const name = info.parameters[0]!;
  const value = (await weight(name, `${place},${d}`)).values[0]!;
  const which = row !== undefined ? `row ${row}` : first === undefined ? `id ${place}` : `position ${place}`;
  return {
    value, size: Math.abs(value), sign: "", words: `row and column of the table: ${which}, column ${d}`,
    terms: [{ left: value, label: `${name}[${place}, ${d}]` }], results: [], lit: [{ tensor: name, index: [place, d] }],
  };
}

async function scale({ info, index, tensor }: Asked): Promise<Made> {
  const x = (await tensor(info.reads[0]!, own(index))).values[0]!;
  const factor = info.settings.factor as number;
  return {
    value: x * factor, size: Math.abs(x * factor), sign: "×", words: "one number times a factor",
    terms: [{ left: x, right: factor, label: "x × factor" }], results: [], lit: [{ tensor: info.reads[0]!, index }],
  };
}

/** Radians that a pair turns from one position to the next. */
export function frequency(i: number, d: number, base: number, ladder: string): number {
  return base ** -(ladder === "tensor2tensor" ? i / (d / 2 - 1) : (2 * i) / d);
}

async function position({ info, index }: Asked): Promise<Made> {
  const [, t, column] = index as [number, number, number];
  const { first, base, ladder } = info.settings as { first: number; base: number; ladder: string };
  const d = info.shape.at(-1)!;
  const interleaved = ladder === "interleaved";
  const pair = interleaved ? Math.floor(column / 2) : column % (d / 2);
  const sine = interleaved ? column % 2 === 0 : column < d / 2;
  const angle = (t + first) * frequency(pair, d, base, ladder);
  return {
    value: sine ? Math.sin(angle) : Math.cos(angle), size: 1, sign: "×",
    words: `the ${sine ? "sine" : "cosine"} of the position times the frequency of pair ${pair}`,
    terms: [{ left: t + first, right: angle / (t + first || 1), label: "position × frequency" }],
    results: [{ name: "angle", value: angle }], lit: [],
  };
}

async function sum({ info, index, tensor }: Asked): Promise<Made> {
  const values = await Promise.all(info.reads.map(async (name) => (await tensor(name, own(index))).values[0]!));
  return {
    value: values.reduce((a, b) => a + b, 0), size: size(values), sign: "+", words: "the same cell of each, added",
    terms: values.map((left, i) => ({ left, label: info.reads[i]! })), results: [],
    lit: info.reads.map((name) => ({ tensor: name, index })),
  };
}

async function linear({ info, index, tensor, weight }: Asked): Promise<Made> {
  const heads = info.settings.size as number | undefined;
  // (B, H, T, K) is x[B, T] times row H · size + K of the matrix; (B, T, D) and (B, C) are as they stand
  const rows = heads === undefined ? index.slice(0, -1) : [index[0]!, index[2]!];
  const n = heads === undefined ? index.at(-1)! : index[1]! * heads + index[3]!;
  const [x, w, b] = await Promise.all([
    tensor(info.reads[0]!, [...rows, ":"].join(",")),
    weight(info.parameters[0]!, `${n},:`),
    info.parameters[1] ? weight(info.parameters[1], `${n}`) : null,
  ]);
  const terms: Term[] = Array.from(x.values, (left, j) => ({ left, right: w.values[j]!, label: `${j}` }));
  const products = terms.map((term) => term.left * term.right!);
  const bias = b?.values[0] ?? 0;
  const dot = total(products);
  return {
    value: dot + bias, size: size(products) + Math.abs(bias), sign: "×",
    words: `a row of ${info.reads[0]} times row ${n} of ${info.parameters[0]}${b ? ", and the bias" : ""}`, terms,
    results: b ? [{ name: "sum", value: dot }, { name: "bias", value: bias }] : [],
    lit: [{ tensor: info.reads[0]!, index: [...rows, null] }, { tensor: info.parameters[0]!, index: [n, null] }],
  };
}

async function rotate({ info, index, tensor }: Asked): Promise<Made> {
  const { first, base, convention } = info.settings as { first: number; base: number; convention: string };
  const [b, h, t, k] = index as [number, number, number, number];
  const d = info.shape.at(-1)!;
  const halves = convention === "halves";
  const pair = halves ? k % (d / 2) : Math.floor(k / 2);
  const isFirst = halves ? k < d / 2 : k % 2 === 0;
  const partner = halves ? (isFirst ? k + d / 2 : k - d / 2) : isFirst ? k + 1 : k - 1;
  const row = (await tensor(info.reads[0]!, `${b},${h},${t},:`)).values;
  const angle = (t + first) * frequency(pair, d, base, "interleaved");
  const terms = [
    { left: row[k]!, right: Math.cos(angle), label: "own × cos" },
    { left: row[partner]!, right: (isFirst ? -1 : 1) * Math.sin(angle), label: "partner × sin" },
  ];
  const products = terms.map((term) => term.left * term.right);
  return {
    value: total(products), size: size(products), sign: "×", terms,
    words: `the pair (${Math.min(k, partner)}, ${Math.max(k, partner)}) turned by position ${t + first}`,
    results: [{ name: "angle", value: angle }],
    lit: [{ tensor: info.reads[0]!, index: [b, h, t, k] }, { tensor: info.reads[0]!, index: [b, h, t, partner] }],
  };
}

async function product({ info, index, tensor }: Asked): Promise<Made> {
  const [b, h, t, s] = index as [number, number, number, number];
  const g = Math.floor(h / (info.settings.shared as number));
  const [q, k] = await Promise.all([tensor(info.reads[0]!, `${b},${h},${t},:`), tensor(info.reads[1]!, `${b},${g},${s},:`)]);
  const terms: Term[] = Array.from(q.values, (left, j) => ({ left, right: k.values[j]!, label: `${j}` }));
  const products = terms.map((term) => term.left * term.right!);
  return {
    value: total(products), size: size(products), sign: "×", words: "a query times a key, number by number, added", terms,
    results: [], lit: [{ tensor: info.reads[0]!, index: [b, h, t, null] }, { tensor: info.reads[1]!, index: [b, g, s, null] }],
  };
}

async function mask({ info, index, tensor }: Asked): Promise<Made> {
  const [, , t, s] = index as [number, number, number, number];
  const x = (await tensor(info.reads[0]!, own(index))).values[0]!;
  const hidden = info.settings.causal === true && s > t;
  return {
    value: hidden ? -Infinity : x, size: Math.abs(x), sign: "",
    words: hidden ? "the key comes later than the query: hidden" : "the query may see this key",
    terms: [{ left: x, label: "score" }], results: [], lit: [{ tensor: info.reads[0]!, index }],
  };
}

async function softmax({ info, index, tensor }: Asked): Promise<Made> {
  const leading = index.slice(0, -1);
  const place = index.at(-1)!;
  const row = Array.from((await tensor(info.reads[0]!, [...leading, ":"].join(","))).values);
  const largest = Math.max(...row);
  const empty = largest === -Infinity;
  const exps = row.map((x) => (empty ? 0 : Math.exp(x - largest)));
  const all = total(exps);
  return {
    value: empty ? 0 : exps[place]! / all, size: 1, sign: "",
    words: "e to each number of the row (less the largest, so that nothing overflows), divided by their sum",
    terms: exps.map((left, i) => ({ left, label: `e^(${short(row[i]!)} − ${short(largest)})` })),
    results: [{ name: "this one", value: exps[place]! }, { name: "sum", value: all }],
    lit: [{ tensor: info.reads[0]!, index: [...leading, null] }],
  };
}

async function mix({ info, index, tensor }: Asked): Promise<Made> {
  const [b, h, t, k] = index as [number, number, number, number];
  const g = Math.floor(h / (info.settings.shared as number));
  const [w, v] = await Promise.all([tensor(info.reads[0]!, `${b},${h},${t},:`), tensor(info.reads[1]!, `${b},${g},:,${k}`)]);
  const terms: Term[] = Array.from(w.values, (left, s) => ({ left, right: v.values[s]!, label: `${s}` }));
  const products = terms.map((term) => term.left * term.right!);
  return {
    value: total(products), size: size(products), sign: "×", words: "each value times its weight, added", terms, results: [],
    lit: [{ tensor: info.reads[0]!, index: [b, h, t, null] }, { tensor: info.reads[1]!, index: [b, g, null, k] }],
  };
}

async function join({ info, index, tensor }: Asked): Promise<Made> {
  const [b, t, column] = index as [number, number, number];
  const k = info.settings.size as number;
  const from = [b, Math.floor(column / k), t, column % k];
  const value = (await tensor(info.reads[0]!, own(from))).values[0]!;
  return {
    value, size: Math.abs(value), sign: "", words: `head ${from[1]! + 1}, number ${from[3]}`,
    terms: [{ left: value, label: `head ${from[1]! + 1}` }], results: [], lit: [{ tensor: info.reads[0]!, index: from }],
  };
}

async function layernorm({ info, index, tensor, weight }: Asked): Promise<Made> {
  const d = index.at(-1)!;
  const leading = index.slice(0, -1);
  const [x, gammas, betas] = await Promise.all([
    tensor(info.reads[0]!, [...leading, ":"].join(",")), weight(info.parameters[0]!, `${d}`), weight(info.parameters[1]!, `${d}`),
  ]);
  const row = Array.from(x.values);
  const mean = total(row) / row.length;
  const variance = total(row.map((one) => (one - mean) ** 2)) / row.length;
  const spread = Math.sqrt(variance + (info.settings.eps as number));
  const gamma = gammas.values[0]!;
  const beta = betas.values[0]!;
  return {
    value: (gamma * (row[d]! - mean)) / spread + beta,
    size: (Math.abs(gamma) * (Math.abs(row[d]!) + Math.abs(mean))) / spread + Math.abs(beta),
    sign: "", words: "γ (x − μ) / √(σ² + ε) + β, over the row of one token", terms: row.map((left, i) => ({ left, label: `${i}` })),
    results: [
      { name: "x", value: row[d]! }, { name: "mean μ", value: mean }, { name: "variance σ²", value: variance },
      { name: "γ", value: gamma }, { name: "β", value: beta },
    ],
    lit: [{ tensor: info.reads[0]!, index: [...leading, null] }],
  };
}

async function rmsnorm({ info, index, tensor, weight }: Asked): Promise<Made> {
  const d = index.at(-1)!;
  const leading = index.slice(0, -1);
  const [x, gammas] = await Promise.all([tensor(info.reads[0]!, [...leading, ":"].join(",")), weight(info.parameters[0]!, `${d}`)]);
  const row = Array.from(x.values);
  const square = total(row.map((one) => one * one)) / row.length;
  const gamma = gammas.values[0]!;
  const value = (gamma * row[d]!) / Math.sqrt(square + (info.settings.eps as number));
  return {
    value, size: Math.abs(value), sign: "", words: "γ x / √(mean of x² + ε), over the row of one token",
    terms: row.map((left, i) => ({ left, label: `${i}` })),
    results: [{ name: "x", value: row[d]! }, { name: "mean of x²", value: square }, { name: "γ", value: gamma }],
    lit: [{ tensor: info.reads[0]!, index: [...leading, null] }],
  };
}

export function activate(x: number, name: string): number {
  if (name === "relu") return Math.max(0, x);
  if (name === "silu") return x / (1 + Math.exp(-x));
  if (name === "gelu") return 0.5 * x * (1 + erf(x / Math.SQRT2));
  return 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
}

async function activation({ info, index, tensor }: Asked): Promise<Made> {
  const x = (await tensor(info.reads[0]!, own(index))).values[0]!;
  const name = info.settings.activation as string;
  const words = { relu: "max(0, x)", silu: "x / (1 + e^−x)", gelu: "x Φ(x)" }[name] ?? "x Φ(x), by its tanh formula";
  return {
    value: activate(x, name), size: Math.abs(x), sign: "", words, terms: [{ left: x, label: "x" }], results: [],
    lit: [{ tensor: info.reads[0]!, index }],
  };
}

async function multiply({ info, index, tensor }: Asked): Promise<Made> {
  const [a, b] = await Promise.all(info.reads.map(async (name) => (await tensor(name, own(index))).values[0]!));
  return {
    value: a! * b!, size: Math.abs(a! * b!), sign: "×", words: "the same cell of both, multiplied",
    terms: [{ left: a!, right: b!, label: "gate × up" }], results: [], lit: info.reads.map((name) => ({ tensor: name, index })),
  };
}

async function same({ info, index, tensor }: Asked): Promise<Made> {
  const value = (await tensor(info.reads[0]!, own(index))).values[0]!;
  return {
    value, size: Math.abs(value), sign: "", words: `the same number as in ${info.reads[0]}`,
    terms: [{ left: value, label: info.reads[0]! }], results: [], lit: [{ tensor: info.reads[0]!, index }],
  };
}

async function pool({ info, index, tensor }: Asked): Promise<Made> {
  const [b, d] = index as [number, number];
  const column = Array.from((await tensor(info.reads[0]!, `${b},:,${d}`)).values);
  const first = info.settings.pooling === "first";
  const terms = (first ? column.slice(0, 1) : column).map((left, t) => ({ left, label: `token ${t + 1}` }));
  const values = terms.map((term) => term.left);
  return {
    value: total(values) / values.length, size: size(values) / values.length, sign: first ? "" : "+",
    words: first ? "the first token's number" : "the mean over the tokens", terms, results: [],
    lit: [{ tensor: info.reads[0]!, index: [b, first ? 0 : null, d] }],
  };
}

function total(values: number[]): number {
  return values.reduce((a, b) => a + b, 0);
}

function size(values: number[]): number {
  return values.reduce((a, b) => a + Math.abs(b), 0);
}

function short(x: number): string {
  return x === -Infinity ? "−∞" : x.toFixed(2).replace("-", "−");
}

/** The error function, by its series near 0 and its continued fraction elsewhere, to 1e-15. */
export function erf(x: number): number {
  const z = Math.abs(x);
  if (z < 2.5) {
    let term = z;
    let all = z;
    for (let n = 1; Math.abs(term) > 1e-17 * all; n++) {
      term *= (-z * z) / n;
      all += term / (2 * n + 1);
    }
    return (Math.sign(x) * 2 * all) / Math.sqrt(Math.PI);
  }
  let fraction = 0;
  for (let n = 60; n > 0; n--) fraction = n / 2 / (z + fraction);
  return Math.sign(x) * (1 - Math.exp(-z * z) / Math.sqrt(Math.PI) / (z + fraction));
}
