// Where the boxes and lines of the machine stand. Columns grow upwards, as in the paper's figure 1.

import type { Block, Column } from "./contract";

export interface Box {
  block: Block;
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Line {
  kind: "flow" | "residual" | "memory";
  points: [number, number][];
}

export interface Label {
  x: number;
  y: number;
  tensor: string; // whose shape stands here
}

export interface Frame {
  side: "encoder" | "decoder";
  x: number;
  y: number;
  width: number;
  height: number;
  layers: number;
  shown: number;
  right: boolean; // where its residual connections run
}

export interface Drawing {
  width: number;
  height: number;
  boxes: Box[];
  lines: Line[];
  labels: Label[];
  frames: Frame[];
}

export const BOX = { width: 172, height: 42 };
const GAP = 30; // between boxes: the arrow and the shape on it
const MARGIN = { side: 44, top: 14 };
const COLUMN = BOX.width + 2 * MARGIN.side;

/** Lays a machine out; `layer` says which layer of each side is open. */
export function drawing(columns: Column[], layer: { encoder: number; decoder: number }): Drawing {
  const stacks = columns.map((column) => stack(column, layer[column.side]));
  const tallest = Math.max(...stacks.map((one) => one.length));
  const height = MARGIN.top * 2 + tallest * (BOX.height + GAP) + 12;
  const result: Drawing = { width: columns.length * COLUMN, height, boxes: [], lines: [], labels: [], frames: [] };
  const place = new Map<string, Box>();
  columns.forEach((column, i) => {
    const x = i * COLUMN + MARGIN.side;
    stacks[i]!.forEach((block, level) => {
      const y = height - MARGIN.top - BOX.height - level * (BOX.height + GAP);
      const box = { block, x, y, width: BOX.width, height: BOX.height };
      result.boxes.push(box);
      place.set(block.id, box);
      if (level > 0) {
        const below = stacks[i]![level - 1]!;
        const middle = x + BOX.width / 2;
        result.lines.push({ kind: "flow", points: [[middle, y + BOX.height + GAP], [middle, y + BOX.height]] });
        result.labels.push({ x: middle + 7, y: y + BOX.height + GAP / 2 - 1, tensor: below.tensor || `${column.side}.ids` });
      }
    });
    const sublayers = column.layers[layer[column.side]] ?? [];
    const right = i === columns.length - 1 && columns.length > 1; // away from the memory's lines
    for (const { blocks } of sublayers) {
      const first = place.get(blocks[0]!.id)!;
      const last = place.get(blocks.at(-1)!.id)!;
      const edge = right ? x + BOX.width : x;
      const out = right ? edge + 15 : edge - 15;
      const from = first.y + BOX.height + GAP - 8;
      const to = last.y + BOX.height / 2;
      result.lines.push({ kind: "residual", points: [[x + BOX.width / 2, from], [out, from], [out, to], [edge, to]] });
    }
    const all = sublayers.flatMap((one) => one.blocks.map((block) => place.get(block.id)!));
    if (all.length) {
      const top = Math.min(...all.map((box) => box.y)) - 9;
      const bottom = Math.max(...all.map((box) => box.y + box.height)) + GAP - 2;
      result.frames.push({
        side: column.side, x: x - 24, y: top, width: BOX.width + 48, height: bottom - top,
        layers: column.layers.length, shown: layer[column.side], right,
      });
    }
  });
  const memory = place.get("memory");
  const lowest = result.boxes.filter((box) => box.block.reads.includes("memory") && box.block.kind === "attention");
  if (memory && columns.length > 1) {
    for (const box of lowest) {
      const middle = COLUMN;
      const y = box.y + box.height / 2;
      const from = memory.y + memory.height / 2;
      result.lines.push({
        kind: "memory", points: [[memory.x + memory.width, from], [middle - 8, from], [middle - 8, y], [box.x, y]],
      });
    }
  }
  return result;
}

function stack(column: Column, layer: number): Block[] {
  const open = column.layers[layer] ?? [];
  return [...column.before, ...open.flatMap((one) => one.blocks), ...column.after];
}

/** The layer that a block belongs to, counted from 0, or null outside the layers. */
export function layerOf(id: string): { side: "encoder" | "decoder"; layer: number } | null {
  const found = /^(encoder|decoder)\.layers\.(\d+)\./.exec(id);
  return found ? { side: found[1] as "encoder" | "decoder", layer: Number(found[2]) } : null;
}
