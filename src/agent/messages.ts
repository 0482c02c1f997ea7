/** Control lines of the client, checked. The page that describes them is `docs/reference/protocol.md`. */
import * as z from "zod";
import { ProtocolMessage } from "./errors.ts";

const whole = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const decimal = z.string().regex(/^(0|[1-9][0-9]{0,19})$/, "must be a decimal string");

const hello = z.object({
  type: z.literal("hello"),
  job: z.string().max(256),
  rank: whole,
  world: whole.min(1),
  local_rank: whole,
  /** Ranks of this node, one entry for each process that takes data: tp, cp and pipeline peers share a rank. */
  here: z.array(whole).min(1).max(4096),
  pid: whole,
  mode: z.enum(["stream", "random"]),
  view: z.object({
    source: z.string().min(1).max(4096),
    index_dir: z.string().max(4096).nullable(),
    columns: z.array(z.string().max(1024)).min(1).max(256).nullable(),
    max_length: whole.min(1).max(1 << 24),
    /** null: the tokenizer's padding token, else 0. */
    pad_id: z.number().int().nullable(),
    strict: z.boolean(),
    sample_rule: z.enum(["record", "document", "stream", "split", "pack"]).nullable().default(null),
    /** Makes ids of a text column. `path`: of tokenizer.json or of the folder that holds it. */
    tokenizer: z
      .object({
        path: z.string().min(1).max(4096),
        text_column: z.string().min(1).max(1024).nullable(),
        truncation_side: z.enum(["left", "right"]),
        special_tokens: z.enum(["template", "none", "bos", "eos", "both"]),
        parse_special: z.boolean(),
        /** Conversations. `template`: a name of the tokenizer's, or a path; `options`: JSON of what it is given besides. */
        chat: z
          .object({
            messages_column: z.string().min(1).max(1024).nullable(),
            tools_column: z.string().min(1).max(1024).nullable(),
            template: z.string().min(1).max(4096).nullable(),
            options: z.string().max(65_536),
          })
          .nullable()
          .default(null),
      })
      .nullable()
      .default(null),
  }),
  order: z.object({
    seed: decimal,
    shuffle: z.enum(["window", "global", "none"]),
    shuffle_memory: whole.nullable(),
    lanes: whole.nullable(),
    window: whole.nullable(),
    unit: z.enum(["extent", "shard"]),
    last: z.enum(["carry", "drop", "pad"]),
    global_batch: whole.min(1),
    /** [samples, global batch] a change of it, from 0 on; null: it does not change. */
    ramp: z
      .array(z.tuple([whole, whole.min(1)]))
      .min(1)
      .max(1024)
      .nullable()
      .default(null),
  }),
  /** Several sources; `view.source` is a name for messages then. */
  mix: z
    .object({
      sources: z
        .array(
          z.object({
            name: z.string().min(1).max(256),
            path: z.string().min(1).max(4096),
            index_dir: z.string().max(4096).nullable(),
          }),
        )
        .min(1)
        .max(1024),
      by: z.enum(["samples", "tokens"]),
      /** Weights, one a source, from a number of samples on. */
      phases: z
        .array(z.object({ from: whole, weights: z.array(z.number().min(0)).min(1) }))
        .min(1)
        .max(1024),
    })
    .nullable()
    .default(null),
  batch_size: whole.min(1).max(1 << 20),
  /** null: every bad record is an error. */
  quarantine: z
    .object({
      on_corrupt: z.enum(["raise", "replace"]),
      on_io_error: z.enum(["raise", "replace"]),
      ledger_dir: z.string().min(1).max(4096),
      quota: whole,
    })
    .nullable()
    .default(null),
  state: z.unknown().nullable(),
  override: z.boolean().default(false),
  build_index: z.boolean().default(true),
  /** DataLoader workers: this session takes steps ≡ offset (mod stride), counted from its first position. */
  stride: whole.min(1).max(4096).default(1),
  offset: whole.default(0),
});

const message = z.discriminatedUnion("type", [
  hello,
  z.object({
    type: z.literal("segment"),
    pid: whole,
    fd: whole.nullable().default(null),
    path: z.string().max(255).nullable().default(null),
    nonce: z.string().regex(/^[0-9a-f]{32}$/),
    slots: whole.max(4096),
  }),
  z.object({ type: z.literal("bell"), session: z.string().max(64) }),
  z.object({ type: z.literal("seek"), position: decimal }),
  z.object({
    type: z.literal("get"),
    indices: z
      .array(whole)
      .min(1)
      .max(1 << 20),
  }),
  z.object({ type: z.literal("why") }),
  z.object({ type: z.literal("stats") }),
  /** Which data is open here; also without a hello: whoever wants to move files asks. */
  z.object({ type: z.literal("uses") }),
  z.object({ type: z.literal("close") }),
]);

export type Hello = z.infer<typeof hello>;
export type ClientMessage = z.infer<typeof message>;

/** Protocol numbers a line carries, before anything else of it is looked at. */
export function versionsOf(line: string): { type: unknown; protocol: unknown; version: unknown } {
  const value = parseJson(line);
  return { type: value["type"], protocol: value["protocol"], version: value["version"] };
}

export function parseMessage(line: string): ClientMessage {
  const parsed = message.safeParse(parseJson(line));
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  throw new ProtocolMessage(
    `control line refused: ${issue?.path.join(".") ?? ""}: ${issue?.message ?? "not understood"}`,
  );
}

function parseJson(line: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(line);
    if (typeof value === "object" && value !== null) return value as Record<string, unknown>;
  } catch (error) {
    throw new ProtocolMessage(`control line is not JSON: ${line.slice(0, 80)}`, {}, undefined, error);
  }
  throw new ProtocolMessage(`control line is not a JSON object: ${line.slice(0, 80)}`);
}
