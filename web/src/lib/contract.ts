// The data contract of docs/explorer-contract.md, version 1: what the server answers, and what an export carries.

export type Kind = "encoder-decoder" | "decoder" | "encoder";
export type Phase = "input" | "encoder" | "decoder" | "output";
export type Side = "source" | "target";

export interface RunInfo {
  id: number;
  name: string;
  about: string;
  kind: Kind;
  example: string;
  parameters: number;
  snapshots: number[];
  weights: string;
  writes: boolean;
  config: ModelConfig;
}

export interface ModelConfig {
  d_model: number;
  d_ff: number;
  n_heads: number;
  n_kv_heads?: number;
  n_encoder_layers?: number;
  n_decoder_layers?: number;
  positions: { kind: string; base: number };
  norm: { placement: string; kind: string };
  ffn: { activation: string; gated: boolean };
}

export interface About {
  version: number;
  runs: RunInfo[];
}

export interface Token {
  token: string;
  id: number;
  special: boolean;
}

export interface TensorInfo {
  axes: string[];
  shape: number[];
  operation: string;
  reads: string[];
  formula: string;
  parameters: string[];
  settings: Record<string, number | string | boolean>;
}

export interface Panel {
  tensor: string;
  label: string;
}

export interface Step {
  id: string;
  title: string;
  phase: Phase;
  block: string;
  panels: Panel[];
  why: string;
  layer: number | null;
  ids: Side | null;
  guess: { question: string; tensor: string; row: number } | null;
  caution: string;
}

export interface Block {
  id: string;
  kind: string;
  label: string;
  detail: string;
  tensor: string;
  step: string;
  parameters: number;
  reads: string[];
}

export interface Column {
  side: "encoder" | "decoder";
  before: Block[];
  layers: { blocks: Block[] }[][];
  after: Block[];
}

export interface Walk {
  source: Token[] | null;
  target: Token[] | null;
  vocabulary: string[] | null;
  written: string | null;
  n_cut: number;
  tensors: Record<string, TensorInfo>;
  machine: Column[];
  steps: Step[];
}

export interface Chance {
  token: string;
  id: number;
  probability: number;
}

export interface Input {
  run: number;
  source: string;
  target: string | null;
  snapshot: number | null;
}

export interface Candidate extends Token {
  logit: number;
  tempered_logit: number;
  probability: number;
  tempered: number;
  kept: boolean;
  chance: number;
}

export interface WrittenStep {
  so_far: number;
  last_row: number[];
  looked: Partial<Record<Side, number[]>>;
  chosen: Token & { probability: number };
  candidates: Candidate[];
  not_shown: number;
  rest: number;
}

export interface SearchCandidate {
  parent: number;
  token: number;
  name: string;
  log_probability: number;
  total: number;
  penalty: number;
  score: number;
  fate: "goes on" | "finished" | "pruned";
  why: string;
}

export interface Generation {
  source: Token[] | null;
  read: Token[];
  decode: Record<string, unknown>;
  limit: number;
  stopped: string;
  steps?: WrittenStep[];
  written?: Token[];
  text?: string;
  search?: SearchCandidate[][];
  results?: { text: string; tokens: string[]; score: number; log_probability: number; stopped: string }[];
}

export interface Look {
  step: number;
  epoch?: number;
  rate?: number;
  loss?: number | null;
  validation_loss?: number | null;
  metric?: number | null;
}

export interface Training {
  looks: Look[];
  averaged: { steps: number[]; validation_loss: number | null; metric: number | null } | null;
  snapshots: number[];
  rates: [number, number][];
  floor: number | null;
  metric: string | null;
  label_smoothing?: number;
}

export interface Teaching {
  x: Token[];
  y: Token[];
  counted: boolean[];
}

export interface Positions {
  kind: string;
  ladder?: string;
  table?: number[][];
  waves?: [number, number, number][];
  shift?: {
    pair: number;
    by: number;
    matrix: [[number, number], [number, number]];
    rows: [number, [number, number], [number, number]][];
  };
}

export interface Parameters {
  total: number;
  closed_form: number;
  parts: { name: string; formula: string; each: number; times: number; total: number; inside: boolean }[];
  tied: string[][];
}
