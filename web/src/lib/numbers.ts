// A tensor, or a part of one, in the order of its axes.

export class Numbers {
  constructor(
    readonly shape: number[],
    readonly values: Float32Array,
  ) {}

  at(...index: number[]): number {
    let place = 0;
    for (let axis = 0; axis < this.shape.length; axis++) place = place * this.shape[axis]! + (index[axis] ?? 0);
    return this.values[place]!;
  }

  /** The same numbers as one matrix: all leading axes at the given places. */
  matrix(...leading: number[]): { rows: number; columns: number; at: (row: number, column: number) => number } {
    const [rows, columns] = this.shape.slice(-2) as [number, number];
    return { rows, columns, at: (row, column) => this.at(...leading, row, column) };
  }
}

/** A matrix of which only the first and the last columns were asked for; the others are NaN. */
export class Edges extends Numbers {
  constructor(
    shape: number[],
    private readonly first: Numbers,
    private readonly last: Numbers,
  ) {
    super(shape, new Float32Array());
  }

  override at(...index: number[]): number {
    const column = index.at(-1)!;
    const leading = index.slice(0, -1);
    if (column < this.first.shape.at(-1)!) return this.first.at(...leading, column);
    const start = this.shape.at(-1)! - this.last.shape.at(-1)!;
    return column < start ? NaN : this.last.at(...leading, column - start);
  }
}

export function product(sizes: number[]): number {
  return sizes.reduce((all, size) => all * size, 1);
}

/** Decodes little-endian float32. */
export function decoded(bytes: ArrayBuffer): Float32Array {
  const view = new DataView(bytes);
  const values = new Float32Array(bytes.byteLength / 4);
  for (let i = 0; i < values.length; i++) values[i] = view.getFloat32(4 * i, true);
  return values;
}
