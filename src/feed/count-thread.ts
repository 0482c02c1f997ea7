/**
 * Count worker: how many tokens each record of a block has. Decodes a block as the feed does and keeps the lengths alone.
 *
 * Messages in: `CountMessage`; out: `CountAnswer`.
 */
import { parentPort } from "node:worker_threads";
import { toErrorRecord } from "../base/errors.ts";
import type { ErrorRecord } from "../base/errors.ts";
import { startOf } from "../formats/dense.ts";
import { BAD_COUNT } from "../dataset/pack.ts";
import { readyReader } from "../formats/registry.ts";
import type { PlacedSegment, RawBlock } from "../formats/types.ts";
import { blockColumns } from "./block-columns.ts";
import { isBadContent } from "./errors.ts";
import type { TextView } from "./text.ts";
import { featuresOfText, openTokenColumn, type TokenColumn } from "./token-column.ts";

export interface CountRequest extends RawBlock {
  format: string;
  segments: readonly PlacedSegment[];
  restarts: Uint32Array;
}

export type CountMessage =
  | { type: "open"; feature: string; text: TextView | undefined; keepBad: boolean }
  | { type: "count"; task: number; request: CountRequest };

/** `bad`: records that were kept though they are bad. `fault`: the first bad record of the block. */
export type CountAnswer =
  | { task: number; counts: Uint32Array; bad: readonly ErrorRecord[] }
  | { task: number; fault: ErrorRecord };

export function run(): void {
  const port = parentPort;
  if (port === null) throw new Error("count-thread must run in a worker");
  let feature = "";
  let features: string[] = [];
  let keepBad = false;
  let text: Promise<TokenColumn> | undefined;
  port.on("message", (message: CountMessage) => {
    if (message.type === "open") {
      ({ feature, keepBad } = message);
      text = message.text === undefined ? undefined : openTokenColumn({ ...message.text, whole: true });
      features = message.text === undefined ? [feature] : featuresOfText(message.text);
      // Its failure is told by each task that needs it.
      text?.catch(() => undefined);
      return;
    }
    const { task, request } = message;
    countsOf(request, feature, features, text, keepBad).then(
      (found) => port.postMessage({ task, ...found } satisfies CountAnswer, [found.counts.buffer as ArrayBuffer]),
      (error: unknown) => port.postMessage({ task, fault: toErrorRecord(error) } satisfies CountAnswer),
    );
  });
}

/** Exported for tests. */
export async function countsOf(
  request: CountRequest,
  feature: string,
  features: readonly string[],
  text: Promise<TokenColumn> | undefined,
  keepBad: boolean,
): Promise<{ counts: Uint32Array; bad: ErrorRecord[] }> {
  const { records } = request;
  const format = await readyReader(request.format);
  const decoded = await blockColumns(format, request, features, request.restarts);
  try {
    const { fields, faults } = text === undefined ? decoded : (await text).tokenize(decoded, request, () => true);
    const bad = [...faults].sort(([a], [b]) => a - b);
    for (const [, fault] of bad) if (!keepBad || !isBadContent(fault.code)) throw fault;
    const column = fields.get(feature);
    const counts = Uint32Array.from({ length: records }, (_, i) =>
      column === undefined ? 0 : column.ends[i]! - startOf(column, i),
    );
    for (const [i] of bad) counts[i] = BAD_COUNT;
    return { counts, bad: bad.map(([, fault]) => toErrorRecord(fault)) };
  } finally {
    decoded.release?.();
  }
}
