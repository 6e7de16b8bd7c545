// Numbers, tokens and shapes as people read them.

import type { Token } from "./contract";

const MINUS = "−";

/** Three significant figures or decimals, whichever is shorter to read; −∞ as itself. */
export function number(x: number, digits = 3): string {
  if (x === -Infinity) return `${MINUS}∞`;
  if (!Number.isFinite(x)) return String(x);
  const size = Math.abs(x);
  const text = size !== 0 && (size >= 10_000 || size < 0.5 * 10 ** -digits) ? x.toExponential(2) : x.toFixed(digits);
  return text.replaceAll("-", MINUS);
}

/** Two decimals, for a cell of a picture. */
export function brief(x: number): string {
  const text = Math.abs(x) >= 1000 ? x.toExponential(0) : x.toFixed(Math.abs(x) >= 100 ? 0 : Math.abs(x) >= 10 ? 1 : 2);
  return (/^-0\.?0*$/.test(text) ? text.slice(1) : text).replaceAll("-", MINUS);
}

/** All the figures that a float32 has. */
export function exact(x: number): string {
  return x === -Infinity ? `${MINUS}∞` : Number(x.toPrecision(9)).toString().replaceAll("-", MINUS);
}

export function count(n: number): string {
  return n.toLocaleString("en-US");
}

export function shape(sizes: readonly number[]): string {
  return `(${sizes.join(", ")}${sizes.length === 1 ? "," : ""})`;
}

const SEEN: Record<string, string> = { " ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "": "∅" };

/** A token with what cannot be seen made visible. */
export function token(text: string): string {
  if (text in SEEN) return SEEN[text]!;
  return text.replace(/[\n\t\r]|^ | $/g, (found) => SEEN[found] ?? found);
}

export function names(tokens: readonly Token[]): string[] {
  return tokens.map((one) => token(one.token));
}

