/** `athanor state show FILE` and `athanor state verify RUN_DIR --data PATH`. */
import { readdir, readFile } from "node:fs/promises";
import { basename, join } from "node:path";
import type { Command } from "commander";
import { formatCount, formatSize } from "../base/units.ts";
import { IndexMissing, indexCommand } from "../dataset/errors.ts";
import { extents, orderView } from "../dataset/extents.ts";
import { openIndex } from "../dataset/index-read.ts";
import { ProofInvalid, ProofMismatch, StateInvalid } from "../order/errors.ts";
import { Order } from "../order/order.ts";
import { checkReport, compareProof, readProof, type Proof, type ProofReport } from "../order/proof-files.ts";
import { identities } from "../order/proof.ts";
import { checkState, parseState, progressOf } from "../order/state.ts";
import type { OrderState } from "../order/types.ts";
import { printLine, wantsJson, withStorage } from "./command.ts";

interface VerifyFlags {
  data: string;
  state?: string;
  indexDir?: string;
}

export function register(program: Command): void {
  const state = program.command("state").description("the loader's state and its proof");
  state
    .command("show")
    .description("a state in words")
    .argument("<file>", "JSON of state_dict()")
    .action(async (file: string, _flags: object, command: Command) => {
      const found = await readState(file);
      await printLine(wantsJson(command) ? JSON.stringify(found) : inWords(found));
    });
  state
    .command("verify")
    .description("recompute the proof of a run from the index and name the first step that differs")
    .argument("<run>", "the run's folder (with proof/), or the folder of the proof files")
    .requiredOption("--data <path>", "the data that the run was trained on, as the loader was given it")
    .option("--state <file>", "a state of the run (default: the one in the proof files)")
    .option("--index-dir <dir>", "where the index lies when the data is read-only")
    .action(async (run: string, flags: VerifyFlags, command: Command) => {
      const proof = readProof(await proofFiles(run));
      const expected = await stateFor(proof, run, flags.state);
      const report = await verify(proof, expected, flags);
      await printLine(
        wantsJson(command) ? JSON.stringify({ ...report, tornLines: proof.tornLines }) : reportText(report, proof),
      );
      checkReport(report);
    });
}

async function readState(file: string): Promise<OrderState> {
  let text: string;
  try {
    text = await readFile(file, "utf8");
  } catch (error) {
    throw new StateInvalid("the state cannot be read", { file }, "give the JSON file that holds it", error);
  }
  return parseState(text, file);
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

async function stateFor(proof: Proof, run: string, file: string | undefined): Promise<OrderState> {
  if (file !== undefined) return await readState(file);
  if (proof.states.length === 1) return parseState(proof.states[0], run);
  throw new ProofMismatch(
    `the proof files name ${proof.states.length} different orders, expected one`,
    { file: run },
    proof.states.length === 0 ? "give --state FILE" : "keep the proof of each order in a folder of its own",
  );
}

async function verify(proof: Proof, state: OrderState, flags: VerifyFlags): Promise<ProofReport> {
  const source = state.sources[0]!;
  for (const view of proof.views) {
    if (view === source.view) continue;
    throw new ProofMismatch(
      `the proof is of another view: found ${view}, expected ${source.view}`,
      {},
      "give the state of this run",
    );
  }
  return await withStorage(async (storage) => {
    const index = await openIndex(flags.data, { storage, indexDir: flags.indexDir });
    if (index === undefined)
      throw new IndexMissing("there is no index", { file: flags.data }, indexCommand(flags.data, flags.indexDir));
    const view = await orderView(index, source.view, 0);
    // Row bytes of 0: memory does not matter here, nothing is held.
    const { resolved } = checkState(
      state,
      { ...view, streams: false },
      { seed: BigInt(state.seed), globalBatch: state.segments[0]!.G },
    );
    return compareProof(
      proof,
      new Order(view, await extents(index, resolved.extentBlocks), resolved),
      identities(index.shards, source.name),
    );
  });
}

function reportText(
  { steps, rows, incomplete, sessions, supersededLines, gaps, difference }: ProofReport,
  { tornLines }: Proof,
): string {
  const lines = [
    `${formatCount(steps)} steps, ${formatCount(rows)} samples: ${difference === undefined ? "each was served as the order says" : "equal up to the first difference"}`,
  ];
  if (sessions > 1)
    lines.push(`${sessions} sessions; ${formatCount(supersededLines)} lines superseded by a later start`);
  for (const { from, to, skip } of gaps)
    lines.push(`positions ${from} to ${to - 1}: ${skip ? "rest of an epoch, left out by the run" : "no proof"}`);
  if (incomplete > 0)
    lines.push(`${incomplete} steps have no line of some rank (cut off by a stop) and were not compared`);
  if (tornLines > 0) lines.push(`${tornLines} half-written last lines were left out`);
  return lines.join("\n");
}

function inWords(state: OrderState): string {
  const lines = [`${formatCount(Number(state.position))} samples delivered, seed ${state.seed}`];
  for (const { name, view, samples } of state.sources)
    lines.push(`source ${basename(name) || name}: ${formatCount(Number(samples))} samples, view ${view}`);
  for (const segment of state.segments) {
    const { L, window, extent, shuffle, last, G, from } = segment;
    const kind =
      shuffle === "window"
        ? `${L} lanes, windows of ${formatCount(window)} samples`
        : shuffle === "global"
          ? "shuffled over all samples"
          : "in file order";
    const unit =
      extent === 0 ? "whole shards" : `extents of ${extent} blocks (up to ${formatSize(extent * 4 * 1024 * 1024)})`;
    lines.push(`from ${formatCount(Number(from))}: ${kind}; ${unit}; optimizer batches of ${G}; last="${last}"`);
  }
  const { epoch, done, epochSteps, into } = progressOf(state);
  lines.push(
    `epoch ${epoch}, ${formatCount(done)} of ${formatCount(epochSteps)} optimizer batches done${into > 0 ? ` and ${formatCount(into)} samples of the next` : ""}`,
  );
  return lines.join("\n");
}
