// Colours of numbers: signed ones diverge from 0, shares go from nothing to full. Both read well without red and green.

import { scaleDiverging, scaleSequential } from "d3-scale";
import { interpolatePuOr, interpolateYlGnBu } from "d3-scale-chromatic";

export type Theme = "light" | "dark";
export type Scale = "signed" | "share";

/** From purple (negative) over the paper's colour to orange (positive); dark: over the dark ground. */
function diverging(theme: Theme): (t: number) => string {
  if (theme === "light") return (t) => interpolatePuOr(0.06 + 0.88 * t);
  return (t) => {
    const far = Math.abs(t - 0.5) * 2;
    const end = t < 0.5 ? [172, 150, 240] : [245, 158, 72];
    const mixed = end.map((one, i) => Math.round([33, 36, 42][i]! + (one - [33, 36, 42][i]!) * far));
    return `rgb(${mixed.join(", ")})`;
  };
}

/** Returns the colour of each number, `largest` being the largest size that occurs. */
export function coloured(scale: Scale, largest: number, theme: Theme): (x: number) => string {
  if (scale === "share") {
    const steps = theme === "light" ? (t: number) => interpolateYlGnBu(0.9 * t) : (t: number) => interpolateYlGnBu(1 - 0.85 * t);
    return scaleSequential(steps).domain([0, largest || 1]).clamp(true);
  }
  return scaleDiverging(diverging(theme)).domain([-(largest || 1), 0, largest || 1]).clamp(true);
}

/** Black or white, whichever is read better on a colour: the contrast is 4.58 at least. */
export function ink(colour: string): string {
  const [r, g, b] = channels(colour).map((one) => {
    const s = one / 255;
    return s <= 0.04045 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}

function channels(colour: string): number[] {
  if (colour.startsWith("#")) return [1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16));
  return colour.match(/[\d.]+/g)!.slice(0, 3).map(Number);
}
