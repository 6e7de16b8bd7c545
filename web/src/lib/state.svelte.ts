// What the page shows now. The address carries it, so that a link leads to the same place.

import type { About, Block, Chance, Input, RunInfo, Step, TensorInfo, Token, Walk } from "./contract";
import type { Theme } from "./colour";
import { names, token } from "./format";
import { Edges, type Numbers, product } from "./numbers";
import type { Proof } from "./prove";
import { prove } from "./prove";
import type { Source } from "./source";

export const VIEWS = {
  walk: "Walk",
  block: "Block",
  attention: "Attention",
  generate: "Generate",
  training: "Training",
  positions: "Positions and parameters",
} as const;
export type View = keyof typeof VIEWS;

export interface Cell {
  tensor: string;
  index: number[];
}

const WHOLE = 2_500_000; // numbers; a larger tensor is asked for in parts
const EDGE = 64; // columns at each end of a matrix that is too wide

function isInside(index: number[], shape: number[]): boolean {
  return index.length === shape.length && index.every((place, i) => Number.isInteger(place) && place >= 0 && place < shape[i]!);
}

class App {
  source!: Source;
  about = $state.raw<About | null>(null);
  walk = $state.raw<Walk | null>(null);
  best = $state.raw<Chance[][]>([]);
  input = $state.raw<Input>({ run: 0, source: "", target: null, snapshot: null });
  view = $state<View>("walk");
  place = $state(0); // of the step
  head = $state<number | null>(0); // null: the mean of all
  cell = $state.raw<Cell | null>(null);
  proof = $state.raw<Proof | null>(null);
  theme = $state<Theme>("light");
  trouble = $state("");
  unproved = $state(""); // why the cell that is locked cannot be proved
  busy = $state(false);

  /** A larger run of the same kind, and its shapes for the same lengths. */
  beside = $state.raw<{ name: string; shapes: Record<string, number[]> } | null>(null);

  run = $derived<RunInfo | null>(this.about?.runs[this.input.run] ?? null);
  step = $derived<Step | null>(this.walk?.steps[this.place] ?? null);
  /** Whether every number of a block fits on the screen. */
  tiny = $derived(
    (this.run?.config.d_model ?? Infinity) <= 8 && Math.max(this.walk?.source?.length ?? 0, this.walk?.target?.length ?? 0) <= 6,
  );
  heads = $derived(this.run?.config.n_heads ?? 1);

  /** Reads another input; what is shown stays until it is there. */
  async open(input: Input, step?: string): Promise<boolean> {
    const turn = ++this.turn;
    this.busy = true;
    this.trouble = "";
    try {
      const walk = await this.source.walk(input);
      if (turn !== this.turn) return false; // another input was asked for meanwhile
      this.shown.clear();
      const same = this.about?.runs[input.run] === this.run;
      const id = step ?? (same ? this.step?.id : undefined);
      // the same cell of the same tensor stays locked, so that one can see what becomes of it
      const { cell } = this;
      const stays = cell && same && String(this.walk?.tensors[cell.tensor]?.shape) === String(walk.tensors[cell.tensor]?.shape);
      this.input = input;
      this.walk = walk;
      this.best = [];
      this.place = Math.max(0, id === undefined ? 0 : walk.steps.findIndex((one) => one.id === id));
      if (this.head !== null) this.head = Math.min(this.head, this.heads - 1);
      await this.pick(stays ? cell : null);
      await Promise.all([this.lookBeside(turn), this.lookUpNames(turn)]);
      if ("probabilities" in walk.tensors) {
        const best = await this.source.best(input);
        if (turn === this.turn) this.best = best;
      }
      return true;
    } catch (error) {
      if (turn === this.turn) this.trouble = (error as Error).message;
      return false;
    } finally {
      if (turn === this.turn) this.busy = false;
    }
  }

  private async lookBeside(turn: number): Promise<void> {
    this.beside = null;
    const own = this.run!;
    const larger = this.about!.runs.filter((one) => one.config.d_model > own.config.d_model);
    const chosen = larger.find((one) => one.kind === own.kind) ?? larger[0];
    if (!chosen) return;
    const n = [this.walk!.source?.length, this.walk!.target?.length];
    try {
      const shapes = await this.source.shapes(chosen.id, n[0] ?? n[1] ?? 1, n[1] ?? n[0] ?? 1);
      if (turn === this.turn) this.beside = { name: chosen.name, shapes };
    } catch {
      // it reads no text as long as this one: there is nothing to set beside
    }
  }

  /** The names of the first and last tokens of a vocabulary that is too large to be sent whole. */
  private async lookUpNames(turn: number): Promise<void> {
    this.edgeNames = null;
    const n = this.walk!.tensors.logits?.shape.at(-1) ?? 0;
    if (this.walk!.vocabulary || !this.run!.writes || !this.source.live) return;
    const [first, last] = await Promise.all([this.source.names(this.run!.id, 0, EDGE), this.source.names(this.run!.id, n - EDGE, n)]);
    const names: string[] = [];
    first.forEach((name, i) => (names[i] = token(name)));
    last.forEach((name, i) => (names[n - EDGE + i] = token(name)));
    if (turn === this.turn) this.edgeNames = names;
  }

  private edgeNames = $state.raw<string[] | null>(null);

  go(place: number): void {
    const last = (this.walk?.steps.length ?? 1) - 1;
    this.place = Math.min(last, Math.max(0, place));
    void this.pick(null);
  }

  goTo(id: string): void {
    const found = this.walk?.steps.findIndex((one) => one.id === id) ?? -1;
    if (found < 0) return;
    this.view = "walk";
    this.go(found);
  }

  /** Locks a cell and computes it again; null frees it. */
  async pick(cell: Cell | null): Promise<void> {
    const pick = ++this.picks;
    this.proof = null;
    this.unproved = "";
    const info = cell && this.walk!.tensors[cell.tensor];
    this.cell = info && isInside(cell.index, info.shape) ? cell : null;
    if (!cell || !info || !this.cell) return;
    const { input } = this;
    try {
      const at = cell.index.join(",");
      const stored = (await this.source.tensor(input, cell.tensor, at)).values[0]!;
      const shown = this.shown.get(cell.tensor);
      const seen = shown && product(shown.shape) === product(info.shape) ? shown.at(...cell.index) : NaN;
      const proof = await prove({
        name: cell.tensor, info, index: cell.index,
        stored: Number.isNaN(seen) ? stored : seen, // what stands on the screen is what is proved
        tensor: (name, part) => this.source.tensor(input, name, part),
        weight: (name, part) => this.source.parameter(input, name, part),
        tokens: this.tokensOf(cell.tensor),
      });
      if (pick === this.picks) this.proof = proof;
    } catch (error) {
      if (pick === this.picks) this.unproved = (error as Error).message;
    }
  }

  private turn = 0; // of the inputs that were asked for
  private picks = 0; // of the cells that were locked or freed
  private readonly shown = new Map<string, Numbers>();

  /** Loads a tensor whole; of a large one the head that is looked at, or the columns at both ends. */
  async load(name: string): Promise<Numbers> {
    const info = this.walk!.tensors[name]!;
    const { input } = this;
    const ask = (at: string): Promise<Numbers> => this.source.tensor(input, name, at);
    let found: Numbers;
    if (product(info.shape) <= WHOLE) found = await ask("");
    else if (info.axes.includes("H") || info.axes.includes("G")) found = await ask(this.region(info));
    else {
      const n = info.shape.at(-1)!;
      const leading = ":,".repeat(info.shape.length - 1);
      found = new Edges(info.shape, ...(await Promise.all([ask(`${leading}0:${EDGE}`), ask(`${leading}${n - EDGE}:${n}`)])));
    }
    if (input === this.input) this.shown.set(name, found);
    return found;
  }

  isWhole(name: string): boolean {
    return product(this.walk!.tensors[name]!.shape) <= WHOLE;
  }

  private region(info: TensorInfo): string {
    return info.axes
      .map((axis, i) => (axis === "B" ? "0" : axis === "H" || axis === "G" ? String(this.headOf(info.axes[i]!)) : ":"))
      .join(",");
  }

  /** The key and value head that serves the head that is looked at; for "H" that one itself. */
  headOf(axis: string): number {
    const head = this.head ?? 0;
    const shared = this.heads / (this.run?.config.n_kv_heads ?? this.heads);
    return axis === "G" ? Math.floor(head / shared) : head;
  }

  tokensOf(tensor: string): Token[] {
    const source = tensor.startsWith("encoder") || tensor === "memory" || this.run?.kind === "encoder";
    return (source ? this.walk?.source : this.walk?.target) ?? [];
  }

  /** The names of the places along an axis of a tensor, where they have names. */
  places(tensor: string, axis: string): string[] | undefined {
    if (axis === "V" || axis === "C") return this.walk?.vocabulary ?? this.edgeNames ?? undefined;
    if (axis === "T") return names(this.tokensOf(tensor));
    if (axis !== "S") return undefined;
    return names(tensor.includes("cross_attention") ? (this.walk?.source ?? []) : this.tokensOf(tensor));
  }

  /** Which places along an axis are special tokens. */
  marks(tensor: string, axis: string): boolean[] | undefined {
    if (axis !== "T" && axis !== "S") return undefined;
    const tokens = axis === "S" && tensor.includes("cross_attention") ? (this.walk?.source ?? []) : this.tokensOf(tensor);
    return tokens.map((one) => one.special);
  }

  block(): Block | null {
    const id = this.step?.block;
    for (const column of this.walk?.machine ?? []) {
      const all = [...column.before, ...column.layers.flatMap((layer) => layer.flatMap((one) => one.blocks)), ...column.after];
      const found = all.find((one) => one.id === id);
      if (found) return found;
    }
    return null;
  }

  /** The state as an address. */
  get hash(): string {
    const values = new URLSearchParams({ run: String(this.input.run), source: this.input.source, view: this.view });
    if (this.input.target !== null) values.set("target", this.input.target);
    if (this.input.snapshot !== null) values.set("snapshot", String(this.input.snapshot));
    if (this.step) values.set("step", this.step.id);
    values.set("head", this.head === null ? "mean" : String(this.head + 1));
    if (this.cell) values.set("cell", `${this.cell.tensor}@${this.cell.index.join(",")}`);
    return `#${values}`;
  }

  /** Waits for a text of a run. */
  empty(run: number): void {
    this.turn++;
    this.input = { run, source: "", target: null, snapshot: null };
    this.walk = null;
    this.trouble = "";
    this.busy = false;
  }

  async restore(hash: string): Promise<void> {
    const values = new URLSearchParams(hash.replace(/^#/, ""));
    const runs = this.about!.runs;
    const run = Math.min(runs.length - 1, Math.max(0, Number(values.get("run") ?? 0) || 0));
    const view = values.get("view");
    if (view !== null && view in VIEWS) this.view = view as View;
    const head = values.get("head");
    if (head !== null) this.head = head === "mean" ? null : Math.max(0, (Number(head) || 1) - 1);
    const snapshot = values.get("snapshot");
    const input: Input = {
      run, source: values.get("source") ?? runs[run]!.example, target: values.get("target"),
      snapshot: snapshot === null ? null : Number(snapshot),
    };
    if (!input.source) return this.empty(run);
    const opened = await this.open(input, values.get("step") ?? undefined);
    const [tensor, index] = (values.get("cell") ?? "").split("@");
    if (opened && tensor && index && tensor in this.walk!.tensors) await this.pick({ tensor, index: index.split(",").map(Number) });
  }
}

export const app = new App();
