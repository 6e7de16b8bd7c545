// Which rows and columns of a matrix there is room for. What does not fit is cut out of the middle, and that is seen.

export const GAP = -1; // stands for the places that were cut out

/** Returns the places that are shown, in order, with one GAP where some are cut out. */
export function shown(n: number, most: number): number[] {
  if (n <= most) return Array.from({ length: n }, (_, i) => i);
  const first = Math.ceil((most - 1) / 2);
  const last = most - 1 - first;
  return [...Array.from({ length: first }, (_, i) => i), GAP, ...Array.from({ length: last }, (_, i) => n - last + i)];
}

export interface Geometry {
  rows: number[];
  columns: number[];
  width: number; // of a cell
  height: number;
  left: number; // where the cells begin
  top: number;
}

export const SMALLEST = 7; // pixels
const WIDEST = 46;
const MOST_ROWS = 64;

export function geometry(n: { rows: number; columns: number }, room: number, left: number, top: number): Geometry {
  const space = Math.max(60, room - left - 2);
  const columns = shown(n.columns, Math.max(3, Math.floor(space / SMALLEST)));
  const rows = shown(n.rows, MOST_ROWS);
  const width = Math.min(WIDEST, space / columns.length);
  const height = n.rows <= 16 ? 22 : n.rows <= 32 ? 15 : 12;
  return { rows, columns, width, height, left, top };
}

/** Returns the cell at a point, or null between and beside the cells. */
export function hit(g: Geometry, x: number, y: number): { row: number; column: number } | null {
  const column = g.columns[Math.floor((x - g.left) / g.width)];
  const row = g.rows[Math.floor((y - g.top) / g.height)];
  return column === undefined || row === undefined || column === GAP || row === GAP ? null : { row, column };
}

/** Returns the cell beside a cell, over the gap and never past an end. */
export function beside(places: number[], from: number, by: number): number {
  const now = Math.max(0, places.indexOf(from));
  let next = Math.min(places.length - 1, Math.max(0, now + by));
  if (places[next] === GAP) next += Math.sign(by);
  return places[next] ?? from;
}
