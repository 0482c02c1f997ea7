/**
 * Count worker: how many tokens each record of a block has. Decodes a block as the feed does and keeps the lengths alone.
 *
 * Messages in: `CountMessage`; out: `CountAnswer`.
 */
import { parentPort } from "node:worker_threads";
import { toErrorRecord } from "../base/errors.ts";
import type { ErrorRecord } from "../base/errors.ts";
import { startOf } from "../formats/dense.ts";
import { formatOf } from "../formats/registry.ts";
import type { PlacedSegment, RawBlock } from "../formats/types.ts";
import { blockColumns } from "./block-columns.ts";
import type { TextView } from "./text.ts";
import { featuresOfText, openTokenColumn, type TokenColumn } from "./token-column.ts";

export interface CountRequest extends RawBlock {
  format: string;
  segments: readonly PlacedSegment[];
  restarts: Uint32Array;
}

export type CountMessage =
  | { type: "open"; feature: string; text: TextView | undefined }
  | { type: "count"; task: number; request: CountRequest };

/** `fault`: the first bad record of the block. */
export type CountAnswer = { task: number; counts: Uint32Array } | { task: number; fault: ErrorRecord };

export function run(): void {
  const port = parentPort;
  if (port === null) throw new Error("count-thread must run in a worker");
  let feature = "";
  let features: string[] = [];
  let text: Promise<TokenColumn> | undefined;
  port.on("message", (message: CountMessage) => {
    if (message.type === "open") {
      feature = message.feature;
      text = message.text === undefined ? undefined : openTokenColumn({ ...message.text, whole: true });
      features = message.text === undefined ? [feature] : featuresOfText(message.text);
      // Its failure is told by each task that needs it.
      text?.catch(() => undefined);
      return;
    }
    const { task, request } = message;
    countsOf(request, feature, features, text).then(
      (counts) => port.postMessage({ task, counts } satisfies CountAnswer, [counts.buffer as ArrayBuffer]),
      (error: unknown) => port.postMessage({ task, fault: toErrorRecord(error) } satisfies CountAnswer),
    );
  });
}

async function countsOf(
  request: CountRequest,
  feature: string,
  features: readonly string[],
  text: Promise<TokenColumn> | undefined,
): Promise<Uint32Array> {
  const { records } = request;
  const format = formatOf(request.format);
  if (format.kind !== "columns") throw new Error(`${format.name} decodes rows`);
  await format.ready?.();
  const decoded = await blockColumns(format, request, features, request.restarts);
  const { fields, faults } = text === undefined ? decoded : (await text).tokenize(decoded, request, () => true);
  if (faults.size > 0) throw faults.get(Math.min(...faults.keys()))!;
  const column = fields.get(feature);
  decoded.release?.();
  return Uint32Array.from({ length: records }, (_, i) =>
    column === undefined ? 0 : column.ends[i]! - startOf(column, i),
  );
}
