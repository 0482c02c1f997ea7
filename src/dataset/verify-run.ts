/**
 * Verify a run: recomputes the proof that its ranks wrote (docs/reference/order.md) from the index.
 *
 * @example
 * const { report, proof } = await verifyRun("/output", "/mnt/lustre/d", { storage });
 */
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { ProofInvalid, ProofMismatch } from "../order/errors.ts";
import { Order } from "../order/order.ts";
import { compareProof, readProof } from "../order/proof-files.ts";
import type { PositionRange, Proof, ProofReport } from "../order/proof-files.ts";
import { identities } from "../order/proof.ts";
import { checkState, parseState } from "../order/state.ts";
import type { OrderState } from "../order/types.ts";
import { IndexMissing, indexCommand } from "./errors.ts";
import { extents, orderView } from "./extents.ts";
import { openIndex } from "./index-read.ts";
import type { IndexPlace } from "./index-read.ts";

export interface VerifyRunOptions extends IndexPlace {
  /** @default the state in the proof files */
  state?: OrderState | undefined;
  /** Left out on purpose. @default none */
  skipped?: readonly PositionRange[];
}

/** `run`: the run's folder (with proof/), or the folder of the proof files. */
export async function verifyRun(
  run: string,
  data: string,
  options: VerifyRunOptions,
): Promise<{ report: ProofReport; proof: Proof }> {
  const proof = readProof(await proofFiles(run));
  const state = options.state ?? stateOfProof(proof, run);
  const source = state.sources[0]!;
  for (const view of proof.views) {
    if (view === source.view) continue;
    throw new ProofMismatch(
      `the proof is of another view: found ${view}, expected ${source.view}`,
      {},
      "give the state of this run",
    );
  }
  const index = await openIndex(data, options);
  if (index === undefined)
    throw new IndexMissing("there is no index", { file: data }, indexCommand(data, options.indexDir));
  const view = await orderView(index, source.view, 0);
  // Row bytes of 0: memory does not matter here, nothing is held.
  const { resolved } = checkState(
    state,
    { ...view, streams: false },
    { seed: BigInt(state.seed), globalBatch: state.segments[0]!.G },
  );
  const order = new Order(view, await extents(index, resolved.extentBlocks), resolved);
  return { report: compareProof(proof, order, identities(index.shards, source.name), options.skipped), proof };
}

async function proofFiles(run: string): Promise<{ name: string; text: string }[]> {
  for (const folder of [join(run, "proof"), run]) {
    const names = await readdir(folder).catch(() => []);
    const found = names.filter((name) => /^\d+-.*\.jsonl$/.test(name)).sort();
    if (found.length === 0) continue;
    return await Promise.all(
      found.map(async (name) => ({ name: join(folder, name), text: await readFile(join(folder, name), "utf8") })),
    );
  }
  throw new ProofInvalid(
    "there is no proof: found no RANK-START.jsonl",
    { file: run },
    "train with proof_dir=, or name the folder that holds proof/",
  );
}

function stateOfProof(proof: Proof, run: string): OrderState {
  if (proof.states.length === 1) return parseState(proof.states[0], run);
  throw new ProofMismatch(
    `the proof files name ${proof.states.length} different orders, expected one`,
    { file: run },
    proof.states.length === 0 ? "give --state FILE" : "keep the proof of each order in a folder of its own",
  );
}
