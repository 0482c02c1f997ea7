/** States, differences and proofs in words. */
import { basename } from "node:path";
import { formatCount, formatNumber, formatSize } from "../base/units.ts";
import type { Proof, ProofReport } from "../order/proof-files.ts";
import type { Skipped } from "../order/skip.ts";
import { progressOf } from "../order/state.ts";
import type { StateDiff } from "../order/state-diff.ts";
import type { OrderState } from "../order/types.ts";
import { tableText } from "./command.ts";

export function stateText(state: OrderState): string {
  const lines = [`${formatCount(Number(state.position))} samples delivered, seed ${state.seed}`];
  for (const source of state.sources) {
    const { name, view, samples } = source;
    lines.push(`source ${basename(name) || name}: ${formatCount(Number(samples))} samples, view ${view}`);
    lines.push(`  ${howText(source)}`);
  }
  for (const { from, sources, weights, G, last } of state.segments) {
    const mix = sources
      .map((number, i) => `${state.sources[number]!.name} ${((weights[i]! * 100) / 65536).toFixed(1)} %`)
      .join(", ");
    lines.push(
      `from ${formatCount(Number(from))}: ${sources.length > 1 || state.sources.length > 1 ? `${mix}; ` : ""}` +
        `optimizer batches of ${formatNumber(G, "sample")}; last="${last}"`,
    );
  }
  const { epoch, done, epochSteps, into } = progressOf(state);
  lines.push(
    `epoch ${epoch}, ${formatCount(done)} of ${formatNumber(epochSteps, "optimizer batch")} done${into > 0 ? ` and ${formatNumber(into, "sample")} of the next` : ""}`,
  );
  return lines.join("\n");
}

function howText({ L, window, extent, shuffle }: OrderState["sources"][number]): string {
  const kind =
    shuffle === "window"
      ? `${formatNumber(L, "lane")}, windows of ${formatNumber(window, "sample")}`
      : shuffle === "global"
        ? "shuffled over all samples"
        : "in file order";
  const unit =
    extent === 0
      ? "whole shards"
      : `extents of ${formatNumber(extent, "block")} (up to ${formatSize(extent * 4 * 1024 * 1024)})`;
  return `${kind}; ${unit}`;
}

export function diffText({ differences, verdict, ahead }: StateDiff): string {
  const lines: string[] = [];
  if (differences.length > 0) {
    const rows = differences.map(({ what, a, b }) => [what, a, b]);
    lines.push(tableText([["", "A", "B"], ...rows], ""));
  }
  const where =
    ahead === 0
      ? "at the same sample"
      : `${formatNumber(Math.abs(ahead), "sample")} ${ahead > 0 ? "further on" : "earlier"}`;
  const verdicts = {
    same: "A and B are the same state",
    moved: `B may be loaded where A was: the same sequence goes on ${where}`,
    reordered: `B may be loaded where A was, but it was served in another order up to its position: the job goes on from what B served, ${where}, with its own weights and batch sizes, and samples that A served may come again or be left out`,
    refused: "B may not be loaded where A was (ATH_STATE_MISMATCH)",
  };
  return [...lines, verdicts[verdict]].join("\n");
}

export function skipText({ from, to, counted, firstStep, lastStep, extra, into, epochs }: Skipped): string {
  let steps =
    firstStep === lastStep
      ? `optimizer step ${formatCount(firstStep)}`
      : `optimizer steps ${formatCount(firstStep)} to ${formatCount(lastStep)}`;
  let began = `step ${formatCount(firstStep)}`;
  if (!counted) [steps, began] = [formatNumber(lastStep - firstStep + 1, "optimizer step"), "the first of them"];
  const lines = [`${steps} left out: ${formatNumber(to - from, "sample")}, positions ${from} to ${to - 1}`];
  if (into > 0) lines.push(`the state stood ${formatNumber(into, "sample")} into ${began}: its rest is left out, too`);
  if (extra > 0) lines.push(`${formatNumber(extra, "sample")} more than asked for, up to a whole optimizer batch`);
  const [before, after] = epochs;
  if (before !== after) lines.push(`from epoch ${before} into epoch ${after}`);
  lines.push(`for \`athanor state verify\` of this run: --skipped ${from}:${to}`);
  return lines.join("\n");
}

export function reportText(
  { steps, rows, replaced = 0, incomplete, sessions, supersededLines, gaps, difference }: ProofReport,
  { tornLines }: Proof,
): string {
  const lines = [
    `${formatNumber(steps, "step")}, ${formatNumber(rows, "sample")}: ${difference === undefined ? "each was served as the order says" : "equal up to the first difference"}`,
  ];
  if (replaced > 0)
    lines.push(
      `${formatNumber(replaced, "sample")} of records that the ledger names: what stood in, or the record itself`,
    );
  if (sessions > 1)
    lines.push(
      `${formatCount(sessions)} sessions; ${formatNumber(supersededLines, "line")} superseded by a later start`,
    );
  for (const { from, to, skip } of gaps)
    lines.push(`positions ${from} to ${to - 1}: ${skip ? "left out by the run" : "no proof"}`);
  if (incomplete > 0)
    lines.push(`not compared, because some rank has no line (cut off by a stop): ${formatNumber(incomplete, "step")}`);
  if (tornLines > 0) lines.push(`half-written last lines left out: ${formatCount(tornLines)}`);
  return lines.join("\n");
}
