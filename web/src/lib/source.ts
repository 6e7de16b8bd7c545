// Where the page's data come from: the server that shows it, or the file that it is in.

import type {
  About, Chance, Generation, Input, Parameters, Positions, Teaching, Training, Walk,
} from "./contract";
import { decoded, Numbers } from "./numbers";

export interface Source {
  readonly live: boolean;
  about(): Promise<About>;
  walk(input: Input): Promise<Walk>;
  tensor(input: Input, name: string, at?: string): Promise<Numbers>;
  parameter(input: Input, name: string, at?: string): Promise<Numbers>;
  shapes(run: number, nSource: number, nTarget: number): Promise<Record<string, number[]>>;
  names(run: number, start: number, stop: number): Promise<string[]>;
  best(input: Input): Promise<Chance[][]>;
  generation(input: Input, decode: Record<string, unknown>): Promise<Generation>;
  training(run: number): Promise<Training>;
  teaching(input: Input): Promise<Teaching>;
  positions(run: number, rows: number, pair: number, by: number): Promise<Positions>;
  parameters(run: number): Promise<Parameters>;
}

export class Refused extends Error {}

function fields(input: Input): Record<string, string> {
  const values: Record<string, string> = { run: String(input.run), source: input.source };
  if (input.target !== null) values.target = input.target;
  if (input.snapshot !== null) values.snapshot = String(input.snapshot);
  return values;
}

/** Asks the server; what was asked before is not asked again. */
export class Live implements Source {
  readonly live = true;
  private readonly known = new Map<string, { made: Promise<unknown>; bytes: number }>();
  private static readonly room = 64 * 2 ** 20; // bytes of answers that are kept

  about = (): Promise<About> => this.json("about", {});
  walk = (input: Input): Promise<Walk> => this.json("walk", fields(input));
  best = (input: Input): Promise<Chance[][]> => this.json("best", fields(input));
  teaching = (input: Input): Promise<Teaching> => this.json("teaching", fields(input));
  training = (run: number): Promise<Training> => this.json("training", { run: String(run) });
  parameters = (run: number): Promise<Parameters> => this.json("parameters", { run: String(run) });

  names = (run: number, start: number, stop: number): Promise<string[]> =>
    this.json("names", { run: String(run), start: String(start), stop: String(stop) });

  shapes = (run: number, nSource: number, nTarget: number): Promise<Record<string, number[]>> =>
    this.json("shapes", { run: String(run), n_source: String(nSource), n_target: String(nTarget) });

  positions = (run: number, rows: number, pair: number, by: number): Promise<Positions> =>
    this.json("positions", { run: String(run), rows: String(rows), pair: String(pair), by: String(by) });

  generation = (input: Input, decode: Record<string, unknown>): Promise<Generation> =>
    this.json("generation", { ...fields({ ...input, target: null }), decode: JSON.stringify(decode) });

  tensor = (input: Input, name: string, at = ""): Promise<Numbers> => this.numbers("tensor", { ...fields(input), name, at });

  parameter = (input: Input, name: string, at = ""): Promise<Numbers> => {
    const values: Record<string, string> = { run: String(input.run), name, at };
    if (input.snapshot !== null) values.snapshot = String(input.snapshot);
    return this.numbers("parameter", values);
  };

  private json<T>(what: string, values: Record<string, string>): Promise<T> {
    return this.once(what, values, async (answer) => {
      const text = await answer.text();
      return [JSON.parse(text) as T, 2 * text.length];
    });
  }

  private numbers(what: string, values: Record<string, string>): Promise<Numbers> {
    return this.once(what, values, async (answer) => {
      const shape = (answer.headers.get("X-Shape") ?? "").split(",").map(Number);
      const bytes = await answer.arrayBuffer();
      return [new Numbers(shape, decoded(bytes)), bytes.byteLength];
    });
  }

  private once<T>(what: string, values: Record<string, string>, read: (answer: Response) => Promise<[T, number]>): Promise<T> {
    const address = `api/${what}?${new URLSearchParams(values)}`;
    const before = this.known.get(address);
    if (before) return before.made as Promise<T>;
    const kept = { made: Promise.resolve() as Promise<unknown>, bytes: 0 };
    const made = (async () => {
      let answer: Response;
      try {
        answer = await fetch(address);
      } catch {
        throw new Refused("the explorer's server does not answer: is it still running?");
      }
      if (!answer.ok) throw new Refused(await answer.text());
      const [value, bytes] = await read(answer);
      kept.bytes = bytes + 200;
      this.forget();
      return value;
    })();
    made.catch(() => this.known.delete(address));
    kept.made = made;
    this.known.set(address, kept);
    return made;
  }

  /** Lets the oldest answers go when there is no more room. */
  private forget(): void {
    let all = 0;
    for (const one of this.known.values()) all += one.bytes;
    for (const [address, one] of this.known) {
      if (all <= Live.room) return;
      all -= one.bytes;
      this.known.delete(address);
    }
  }
}

export interface Pack {
  about: About;
  input: Input;
  walk: Walk;
  best: Chance[][] | null;
  parameters: Parameters;
  positions: Positions;
  tensors: Record<string, { shape: number[]; data: string }>;
  weights: Record<string, { shape: number[]; data: string }>;
  left_out: string[]; // what did not fit, in words
}

/** Reads what an exported file carries: one input of one run. */
export class Packed implements Source {
  readonly live = false;
  private readonly unpacked = new Map<object, Numbers>();

  constructor(readonly pack: Pack) {}

  about = async (): Promise<About> => this.pack.about;
  walk = async (): Promise<Walk> => this.pack.walk;
  parameters = async (): Promise<Parameters> => this.pack.parameters;
  positions = async (): Promise<Positions> => this.pack.positions;
  shapes = (): Promise<Record<string, number[]>> => this.absent("another run");
  names = (): Promise<string[]> => this.absent("a large vocabulary");
  generation = (): Promise<Generation> => this.absent("writing another text");
  training = (): Promise<Training> => this.absent("how the run learned");
  teaching = (): Promise<Teaching> => this.absent("how the run learned");

  best = async (): Promise<Chance[][]> => this.pack.best ?? [];

  tensor = (_: Input, name: string, at = ""): Promise<Numbers> => this.part(this.pack.tensors, name, at);
  parameter = (_: Input, name: string, at = ""): Promise<Numbers> => this.part(this.pack.weights, name, at);

  private async part(all: Pack["tensors"], name: string, at: string): Promise<Numbers> {
    const found = all[name];
    if (!found) throw new Refused(`this file does not carry ${name}; the live explorer does`);
    let whole = this.unpacked.get(found);
    if (!whole) {
      const bytes = Uint8Array.from(atob(found.data), (letter) => letter.charCodeAt(0));
      whole = new Numbers(found.shape, decoded(bytes.buffer));
      this.unpacked.set(found, whole);
    }
    return part(whole, at);
  }

  private absent(what: string): Promise<never> {
    return Promise.reject(new Refused(`${what} needs the live explorer: glassformer explore RUN`));
  }
}

/** Cuts a part out, as the server does: for each axis an index, a range, or ":". */
export function part(all: Numbers, at: string): Numbers {
  if (!at) return all;
  const ranges = at.split(",").map((one, axis) => {
    const [start, stop] = one.split(":");
    if (stop === undefined) return [Number(start), Number(start) + 1] as const;
    return [start ? Number(start) : 0, stop ? Number(stop) : all.shape[axis]!] as const;
  });
  const shape = ranges.map(([start, stop]) => stop - start);
  const values = new Float32Array(shape.reduce((n, size) => n * size, 1));
  const index = ranges.map(([start]) => start);
  for (let place = 0; place < values.length; place++) {
    values[place] = all.at(...index);
    for (let axis = index.length - 1; axis >= 0; axis--) {
      if (++index[axis]! < ranges[axis]![1]) break;
      index[axis] = ranges[axis]![0];
    }
  }
  return new Numbers(shape, values);
}
