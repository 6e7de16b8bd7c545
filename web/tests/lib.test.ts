import { describe, expect, it } from "vitest";
import { coloured, ink } from "../src/lib/colour";
import type { Block, Column } from "../src/lib/contract";
import { drawing, layerOf } from "../src/lib/diagram";
import { zeros } from "../src/lib/facts";
import { brief, exact, number, shape, token } from "../src/lib/format";
import { beside, GAP, geometry, hit, shown } from "../src/lib/layout";
import { decoded, Numbers } from "../src/lib/numbers";
import { activate, erf, frequency, prove } from "../src/lib/prove";
import { part } from "../src/lib/source";

describe("numbers", () => {
  const cube = new Numbers([2, 3, 4], Float32Array.from({ length: 24 }, (_, i) => i));

  it("are found by their places", () => {
    expect(cube.at(1, 2, 3)).toBe(23);
    expect(cube.matrix(1).at(0, 1)).toBe(13);
  });

  it("are cut as the server cuts them", () => {
    const cut = part(cube, "1,0:2,3");
    expect(cut.shape).toEqual([1, 2, 1]);
    expect([...cut.values]).toEqual([15, 19]);
    expect(part(cube, "")).toBe(cube);
    expect([...part(cube, "0,1,:").values]).toEqual([4, 5, 6, 7]);
  });

  it("come little-endian", () => {
    expect([...decoded(new Uint8Array([0, 0, 0x80, 0x3f, 0, 0, 0x80, 0xff]).buffer)]).toEqual([1, -Infinity]);
  });
});

describe("what there is room for", () => {
  it("is cut in the middle", () => {
    expect(shown(5, 5)).toEqual([0, 1, 2, 3, 4]);
    expect(shown(10, 5)).toEqual([0, 1, GAP, 8, 9]);
    expect(shown(100, 8)).toHaveLength(8);
  });

  it("knows which cell a point is in", () => {
    const g = geometry({ rows: 100, columns: 1000 }, 420, 20, 30);
    expect(hit(g, 21, 31)).toEqual({ row: 0, column: 0 });
    const gap = g.columns.indexOf(GAP);
    expect(hit(g, 20 + (gap + 0.5) * g.width, 31)).toBeNull();
    expect(hit(g, 20 + (g.columns.length - 0.5) * g.width, 31)).toEqual({ row: 0, column: 999 });
    expect(hit(g, 10, 31)).toBeNull();
  });

  it("lets the cursor over the gap, and past no end", () => {
    const places = shown(10, 5);
    expect(beside(places, 1, 1)).toBe(8);
    expect(beside(places, 8, -1)).toBe(1);
    expect(beside(places, 9, 1)).toBe(9);
    expect(beside(places, 0, -1)).toBe(0);
  });
});

describe("the machine", () => {
  const block = (id: string, kind: string, reads: string[] = []): Block => ({
    id, kind, label: id, detail: "", tensor: id, step: id, parameters: 0, reads,
  });
  const layer = (side: string, i: number, cross: boolean) => [
    { blocks: [block(`${side}.layers.${i}.self_attention`, "attention"), block(`${side}.layers.${i}.add`, "add")] },
    ...(cross ? [{ blocks: [block(`${side}.layers.${i}.cross_attention`, "attention", ["x", "memory"]), block(`${side}.layers.${i}.add2`, "add")] }] : []),
  ];
  const columns: Column[] = [
    { side: "encoder", before: [block("encoder.ids", "tokens")], layers: [layer("encoder", 0, false), layer("encoder", 1, false)], after: [block("memory", "memory")] },
    { side: "decoder", before: [block("decoder.ids", "tokens")], layers: [layer("decoder", 0, true), layer("decoder", 1, true)], after: [block("logits", "linear")] },
  ];
  const d = drawing(columns, { encoder: 0, decoder: 1 });

  it("shows one layer of each side", () => {
    const ids = d.boxes.map((box) => box.block.id);
    expect(ids).toContain("decoder.layers.1.cross_attention");
    expect(ids).not.toContain("decoder.layers.0.cross_attention");
    expect(d.frames.map((one) => [one.layers, one.shown])).toEqual([[2, 0], [2, 1]]);
  });

  it("leads the memory to the cross-attention, and each residual around its sublayer", () => {
    const [memory] = d.lines.filter((line) => line.kind === "memory");
    const box = d.boxes.find((one) => one.block.id === "decoder.layers.1.cross_attention")!;
    expect(memory!.points.at(-1)).toEqual([box.x, box.y + box.height / 2]);
    expect(d.lines.filter((line) => line.kind === "residual")).toHaveLength(3);
  });

  it("overlaps nothing and stays inside", () => {
    for (const a of d.boxes) {
      expect(a.x >= 0 && a.y >= 0 && a.x + a.width <= d.width && a.y + a.height <= d.height).toBe(true);
      for (const b of d.boxes) if (a !== b && a.x === b.x) expect(Math.abs(a.y - b.y)).toBeGreaterThan(a.height);
    }
  });

  it("knows the layer of a block", () => {
    expect(layerOf("encoder.layers.12.ffn")).toEqual({ side: "encoder", layer: 12 });
    expect(layerOf("memory")).toBeNull();
  });
});

describe("formats", () => {
  it("write minus and infinity as people do", () => {
    expect(number(-0.1234)).toBe("−0.123");
    expect(number(-Infinity)).toBe("−∞");
    expect(number(0.00001)).toBe("1.00e−5");
    expect(number(0)).toBe("0.000");
    expect(brief(-0.001)).toBe("0.00");
    expect(brief(-12.34)).toBe("−12.3");
    expect(exact(Math.fround(0.1))).toBe("0.100000001");
    expect(shape([1, 5])).toBe("(1, 5)");
    expect(shape([3])).toBe("(3,)");
  });

  it("make visible what cannot be seen", () => {
    expect([" ", "\n", "\t", "", "a b", " the", "</script>"].map(token)).toEqual(["␣", "⏎", "⇥", "∅", "a b", "␣the", "</script>"]);
  });
});

describe("colours", () => {
  it("are symmetric about 0, and read in black or white", () => {
    for (const theme of ["light", "dark"] as const) {
      const paint = coloured("signed", 2, theme);
      expect(paint(0)).not.toBe(paint(1));
      expect(paint(-2)).not.toBe(paint(2));
      expect(paint(5)).toBe(paint(2));
    }
    expect(ink("#ffffff")).toBe("#000000");
    expect(ink("rgb(10, 10, 40)")).toBe("#ffffff");
  });
});

describe("formulas", () => {
  it("has an exact error function", () => {
    for (const [x, y] of [[0, 0], [0.5, 0.5204998778130465], [1, 0.8427007929497149], [2.4, 0.9993114861033549], [3, 0.9999779095030014]] as const) {
      expect(erf(x)).toBeCloseTo(y, 13);
      expect(erf(-x)).toBeCloseTo(-y, 13);
    }
  });

  it("has each activation", () => {
    expect(activate(-1, "relu")).toBe(0);
    expect(activate(1, "silu")).toBeCloseTo(0.7310585786, 9);
    expect(activate(1, "gelu")).toBeCloseTo(0.8413447461, 9);
    expect(activate(1, "gelu-tanh")).toBeCloseTo(0.8411919906, 9);
  });

  it("has each ladder of frequencies", () => {
    expect(frequency(1, 64, 10000, "interleaved")).toBeCloseTo(10000 ** (-2 / 64), 12);
    expect(frequency(31, 64, 10000, "tensor2tensor")).toBeCloseTo(1e-4, 12);
  });

  const asked = (stored: number) => ({
    name: "sum", info: { axes: ["B", "T"], shape: [1, 2], operation: "sum", reads: ["a", "b"], formula: "", parameters: [], settings: {} },
    index: [0, 1], stored, weight: () => Promise.reject(new Error("no weight")), tokens: [],
    tensor: (name: string) => Promise.resolve(new Numbers([1, 1], Float32Array.of(name === "a" ? 1.5 : -1.25))),
  });

  it("finds what is right and what is not", async () => {
    const right = await prove(asked(0.25));
    expect([right.value, right.size, right.right]).toEqual([0.25, 2.75, true]);
    expect((await prove(asked(0.25 + 2e-5))).right).toBe(true); // within 1e-5 of the sum of the sizes
    expect((await prove(asked(0.25 + 4e-5))).right).toBe(false);
  });

  it("counts what an activation sets to 0", () => {
    expect(zeros(new Numbers([1, 2, 4], Float32Array.of(0, 1, 0, 0, 1, 1, 1, 0)))).toEqual([0.75, 0.25]);
  });
});
