/**
 * Ledger: which records were replaced by which (docs/reference/quarantine.md), as JSON lines that are appended and never
 * changed. Pure: text in, entries out.
 *
 *   {"source":"data","shard":"a.tfrecord","record":12,"byteOffset":4711,"code":"ATH_RECORD_CRC","replacement":{"shard":"a.tfrecord","record":13}}
 *
 * @example
 * const entries = readLedger([{ name: "quarantine-node7-4711-1764581045123.jsonl", text }]);
 */
import * as z from "zod";
import { LedgerInvalid } from "./errors.ts";
import { shardKey } from "./proof.ts";
import type { Identity } from "./proof.ts";

const whole = z.number().int().min(0);
const Entry = z.object({
  source: z.string(),
  shard: z.string(),
  record: whole,
  /** Of the bad record, or of the block that could not be read. */
  byteOffset: whole,
  code: z.string(),
  replacement: z.object({ shard: z.string(), record: whole }),
});

export type LedgerEntry = z.infer<typeof Entry>;

/** Names of ledger files: `quarantine-NODE-PID-START.jsonl`, START in milliseconds since 1970. */
export const LEDGER_FILE = /^quarantine-.*\.jsonl$/;

export function ledgerLine({ source, shard, record, byteOffset, code, replacement }: LedgerEntry): string {
  return `${JSON.stringify({ source, shard, record, byteOffset, code, replacement })}\n`;
}

/** What was replaced: one key a bad record, however often it was and by whatever. */
export function badRecord({ source, shard, record }: LedgerEntry): string {
  return JSON.stringify([source, shard, record]);
}

/** All entries. A last line without its newline was cut off by a kill and is left out; other damage is ATH_LEDGER_INVALID. */
export function readLedger(files: readonly { name: string; text: string }[]): LedgerEntry[] {
  return files.flatMap(({ name, text }) =>
    text
      .split("\n")
      .slice(0, -1)
      .map((line, i) => parseEntry(line, name, i + 1)),
  );
}

/** Identities with what stood in for them. `identify`: of one source, by sample. */
export function withLedger(
  identify: (sample: number) => Identity,
  entries: readonly LedgerEntry[],
): (sample: number) => Identity {
  const known = new Map<string, Identity[]>();
  for (const { source, shard, record, replacement } of entries) {
    const key = `${shardKey(source, shard)} ${record}`;
    const instead = { shardKey: shardKey(source, replacement.shard), record: replacement.record, token: 0 };
    const others = known.get(key) ?? [];
    if (others.some((other) => other.shardKey === instead.shardKey && other.record === instead.record)) continue;
    known.set(key, [...others, instead]);
  }
  return (sample) => {
    const own = identify(sample);
    const instead = known.get(`${own.shardKey} ${own.record}`);
    return instead === undefined ? own : { ...own, instead };
  };
}

function parseEntry(text: string, file: string, line: number): LedgerEntry {
  let problem: string;
  try {
    const parsed = Entry.safeParse(JSON.parse(text));
    if (parsed.success) return parsed.data;
    const issue = parsed.error.issues[0]!;
    problem = `${issue.path.join(".") || "(top)"}: ${issue.message}`;
  } catch {
    problem = "not JSON";
  }
  throw new LedgerInvalid(`ledger line is damaged: ${problem}`, { file, line }, "restore the file or take it away");
}
