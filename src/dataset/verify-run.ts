/**
 * Verify a run: recomputes the proof that its ranks wrote (docs/reference/order.md) from the index and the ledger.
 *
 * @example
 * const { report, proof } = await verifyRun("/output", "/mnt/lustre/d", { storage });
 */
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { ProofInvalid, ProofMismatch } from "../order/errors.ts";
import { Order } from "../order/order.ts";
import { LEDGER_FILE, readLedger, withLedger } from "../order/ledger.ts";
import { compareProof, readProof } from "../order/proof-files.ts";
import type { PositionRange, Proof, ProofReport, ProofText } from "../order/proof-files.ts";
import { identities } from "../order/proof.ts";
import type { Identity } from "../order/proof.ts";
import { entriesOf, parseState, segmentsOf, timelineOf } from "../order/state.ts";
import type { OrderState, SourceEntry } from "../order/types.ts";
import { IndexMissing, indexCommand, ViewMissing } from "./errors.ts";
import { extents, orderView } from "./extents.ts";
import { openIndex } from "./index-read.ts";
import type { IndexPlace } from "./index-read.ts";
import { pastSets } from "./past.ts";
import { sampleRules } from "./samples.ts";
import { samplesOfView } from "./view-search.ts";
import { nameOf } from "./set-name.ts";
import type { DatasetIndex } from "./types.ts";

export interface VerifyRunOptions extends IndexPlace {
  /** @default the state in the proof files */
  state?: OrderState | undefined;
  /** Folder of the ledger of replaced records. @default that of the proof files */
  ledger?: string | undefined;
  /** Of views over tokens whose rows are longer than 131073, which is not found by itself. */
  maxLength?: number | undefined;
  /** Compares also with data of another fingerprint than the proof names: compressed anew, or repaired. @default false */
  otherData?: boolean | undefined;
  /** Left out on purpose. @default none */
  skipped?: readonly PositionRange[];
}

/** `run`: the run's folder (with proof/), or the folder of the proof files. `data`: of the one source, or of each by name. */
export async function verifyRun(
  run: string,
  data: string | ReadonlyMap<string, string>,
  options: VerifyRunOptions,
): Promise<{ report: ProofReport; proof: Proof }> {
  const { folder, files } = await proofFiles(run);
  const proof = readProof(files);
  const replaced = readLedger(await filesLike(options.ledger ?? folder, LEDGER_FILE));
  const state = options.state ?? stateOfProof(proof, run);
  const foreign = proof.views.find((view) => !state.sources.some((source) => source.view === view));
  if (foreign !== undefined) {
    throw new ProofMismatch(
      `the proof is of another view: found ${foreign}, expected ${state.sources.map(({ view }) => view).join(" or ")}`,
      {},
      "give the state of this run",
    );
  }
  const entries = entriesOf(state);
  const sets = await setsOf(entries, data, options.otherData === true ? new Map() : proof.data, proof.pieces, options);
  const parts = await Promise.all(
    entries.map(async (entry, number) => {
      const { lanes, window, extentBlocks, shuffle } = entry;
      const index = sets[number]!;
      // Row bytes of 0: memory does not matter here, nothing is held.
      const view = await orderView(index, entry.view, 0);
      const resolved = { seed: BigInt(state.seed), shuffle, held: false, lanes, window, extentBlocks };
      return { number, view, extents: await extents(index, extentBlocks), resolved };
    }),
  );
  const order = new Order(timelineOf(entries, segmentsOf(state)), parts);
  const known = await Promise.all(
    entries.map(async ({ name }, number) => withLedger(await identitiesOf(sets[number]!, name), replaced)),
  );
  const report = compareProof(proof, order, (source, sample) => known[source]!(sample), options.skipped);
  return { report, proof };
}

/** The set of each source: the one that is there, or what it was before shards were appended. */
async function setsOf(
  entries: readonly SourceEntry[],
  data: string | ReadonlyMap<string, string>,
  proven: Proof["data"],
  pieces: Proof["pieces"],
  options: VerifyRunOptions,
): Promise<DatasetIndex[]> {
  const sets = new Map<string, DatasetIndex[]>();
  for (const { name } of entries) {
    if (sets.has(name)) continue;
    const path = typeof data === "string" ? data : data.get(name);
    if (path === undefined || (typeof data === "string" && entries.some((entry) => entry.name !== name))) {
      throw new ProofInvalid(
        `the run has the sources ${[...new Set(entries.map((entry) => entry.name))].join(", ")}; the data of ${name} is not named`,
        {},
        "give --data NAME=PATH for each of them",
      );
    }
    const index = await openIndex(path, options);
    if (index === undefined)
      throw new IndexMissing("there is no index", { file: path }, indexCommand(path, options.indexDir));
    sets.set(name, [index, ...pastSets(index)]);
  }
  return await Promise.all(
    entries.map(async ({ name, view, samples }) => {
      const known = sets.get(name)!;
      const expected = proven.get(view);
      const same = known.filter(({ fingerprint }) => expected === undefined || fingerprint === expected);
      const [index] = known;
      if (same.length === 0) {
        throw new ProofMismatch(
          `the run was over other data of source ${name}: found fingerprint ${index!.fingerprint}, expected ${expected}`,
          { file: nameOf(index!) },
          "name the data that the run was trained on; for a copy that was compressed anew or repaired give --other-data",
        );
      }
      for (const set of same) {
        const found = await samplesOfView(set, view, options.storage, {
          maxLength: options.maxLength,
          pieces: pieces.get(view),
        });
        if (found?.totals.records === samples) return found;
      }
      // The same data has as many records: it is rows that the run was over, and nothing here says which.
      if (expected !== undefined && !pieces.has(view) && sampleRules(index!).includes("record")) {
        throw new ViewMissing(
          `the run was over ${samples} rows of split or packed records of source ${name}, and its proof does not say how they were made`,
          { file: join(index!.folder!, "views", `${view}.bin`) },
          "run `athanor index --view` with the options of the loader, which makes this file, and verify again",
        );
      }
      throw new ProofMismatch(
        `the run was over ${samples} samples of source ${name}, ${
          sampleRules(index!).includes("record") ? `the index has ${index!.totals.records}` : "no view of the data has"
        }`,
        { file: nameOf(index!) },
        "name the data that the run was trained on, and max_length with --max-length if it was above 131073",
      );
    }),
  );
}

/** Identities of samples, by number; those cut out of tokens are all looked up before: 12 bytes each. */
async function identitiesOf(index: DatasetIndex, source: string): Promise<(sample: number) => Identity> {
  const plain = identities(index.shards, source);
  const { cut, shards, totals } = index;
  if (cut === undefined) return plain;
  const records = new Float64Array(totals.records);
  const tokens = new Uint32Array(totals.records);
  let at = 0;
  for (const [shard, { blocks }] of shards.entries()) {
    for (let block = 0; block < blocks; block++) {
      const { record, token } = await cut.of(shard, block);
      records.set(record, at);
      tokens.set(token, at);
      at += record.length;
    }
  }
  return (sample) => ({ ...plain(sample), record: records[sample]!, token: tokens[sample]! });
}

async function proofFiles(run: string): Promise<{ folder: string; files: ProofText[] }> {
  for (const folder of [join(run, "proof"), run]) {
    const files = await filesLike(folder, /^\d+-.*\.jsonl$/);
    if (files.length > 0) return { folder, files };
  }
  throw new ProofInvalid(
    "there is no proof: found no RANK-START.jsonl",
    { file: run },
    "train with proof_dir=, or name the folder that holds proof/",
  );
}

/** In the order of their names; of a folder that cannot be listed, none. */
async function filesLike(folder: string, pattern: RegExp): Promise<ProofText[]> {
  const names = await readdir(folder).catch(() => []);
  return Promise.all(
    names
      .filter((name) => pattern.test(name))
      .sort()
      .map(async (name) => ({ name: join(folder, name), text: await readFile(join(folder, name), "utf8") })),
  );
}

/** The last state: what it tells of the past must be what the others say. */
function stateOfProof(proof: Proof, run: string): OrderState {
  const states = proof.states.map((state) => parseState(state, run));
  const last = states.at(-1);
  if (last === undefined) {
    throw new ProofMismatch("the proof files name no order, expected one", { file: run }, "give --state FILE");
  }
  const other = states.find((state) => !isPastOf(state, last));
  if (other === undefined) return last;
  throw new ProofMismatch(
    `the proof files name ${states.length} different orders, expected one`,
    { file: run },
    "keep the proof of each order in a folder of its own",
  );
}

function isPastOf(a: OrderState, b: OrderState): boolean {
  const began = ({ segments }: OrderState): string => segments[0]!.from;
  const first = ({ sources, segments }: OrderState): string => JSON.stringify(sources[segments[0]!.sources[0]!]);
  return a.seed === b.seed && began(a) === began(b) && first(a) === first(b);
}
