// Bad records under a job: which records stand in is a function of the bytes, whatever the order, the ranks and the start.
import assert from "node:assert/strict";
import { cpSync, mkdtempSync, readdirSync, readFileSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import fc from "fast-check";
import type { BlockTable } from "../../src/formats/types.ts";
import { readLedger } from "../../src/order/ledger.ts";
import type { LedgerEntry } from "../../src/order/ledger.ts";
import type { OrderOptions } from "../../src/order/types.ts";
import { Rig, remove, writeShards } from "./rig.ts";

// 600 records of some 30 KB: blocks of about 140 records. Shard 2 is gzip in the set of streams.
const COUNTS = [330, 1, 0, 269];
const N = 600;
let plain = "";
let streams = "";
const made: string[] = [];

before(() => {
  plain = writeShards(COUNTS, 30_000);
  streams = writeShards([200, 40, 60], 30_000, [0, 1]);
  made.push(plain, streams);
});
after(() => made.forEach(remove));

const scratch = (name: string): string => {
  const folder = mkdtempSync(join(tmpdir(), `athanor-${name}-`));
  made.push(folder);
  return folder;
};

const name = (shard: number): string => `s${String(shard).padStart(3, "0")}.tfrecord`;

type Kind = "payload" | "crc" | "length" | "length crc";

/** Offsets of the frames of a shard, by its lengths. */
function framesOf(bytes: Buffer): number[] {
  const at: number[] = [];
  for (let offset = 0; offset < bytes.length; offset += 16 + Number(bytes.readBigUInt64LE(offset))) at.push(offset);
  return [...at, bytes.length];
}

/** Damages records of a shard under the same size and mtime. */
function damage(folder: string, shard: number, records: ReadonlyMap<number, Kind>): void {
  const path = join(folder, name(shard));
  const { atime, mtime } = statSync(path);
  const bytes = readFileSync(path);
  const frames = framesOf(bytes);
  for (const [record, kind] of records) {
    const [begin, end] = [frames[record]!, frames[record + 1]!];
    bytes[{ payload: begin + 5000, crc: end - 2, length: begin + 1, "length crc": begin + 9 }[kind]]! ^= 0x10;
  }
  writeFileSync(path, bytes);
  utimesSync(path, atime, mtime);
}

/** The rule, written again: number in the shard of what stands in for `record`. */
function standIn(table: BlockTable, bad: ReadonlySet<number>, record: number): number {
  const block = table.firstRecord.findIndex((first, b) => first <= record && record < table.firstRecord[b + 1]!);
  const goodOf = (b: number): number[] =>
    Array.from(
      { length: table.firstRecord[b + 1]! - table.firstRecord[b]! },
      (_, i) => table.firstRecord[b]! + i,
    ).filter((i) => !bad.has(i));
  const here = goodOf(block);
  const behind = here.find((i) => i > record);
  if (behind !== undefined) return behind;
  if (here.length > 0) return here.at(-1)!;
  const order = [
    ...Array.from({ length: block }, (_, i) => block - 1 - i),
    ...Array.from({ length: table.blocks - block - 1 }, (_, i) => block + 1 + i),
  ];
  const other = order.map(goodOf).find((good) => good.length > 0);
  if (other === undefined) throw new Error("no good record");
  return other[(record - table.firstRecord[block]!) % other.length]!;
}

const ledgerOf = (folder: string): LedgerEntry[] =>
  readLedger(readdirSync(folder).map((file) => ({ name: file, text: readFileSync(join(folder, file), "utf8") })));

interface Damaged {
  folder: string;
  counts: readonly number[];
  bad: readonly ReadonlyMap<number, Kind>[];
  tables: BlockTable[];
}

async function tablesOf(folder: string, counts: readonly number[]): Promise<BlockTable[]> {
  let tables: Promise<BlockTable>[] = [];
  const rig = await Rig.open(
    folder,
    { seed: 1n, globalBatch: 4 },
    {
      batch: 4,
      world: 1,
      indexed: (index) => (tables = counts.map((_, shard) => index.shardTable(shard).then((stored) => stored.table))),
    },
  );
  await rig.close();
  return Promise.all(tables);
}

/** Opens a rig over the sound set and damages it before the first read. */
function open(
  set: Damaged,
  options: OrderOptions,
  size: { batch: number; world: number; quota?: number },
  ledger: string,
): Promise<Rig> {
  const copy = scratch("bad");
  cpSync(set.folder, copy, { recursive: true, preserveTimestamps: true });
  return Rig.open(copy, options, {
    ...size,
    ledger,
    indexed: () => set.bad.forEach((records, shard) => damage(copy, shard, records)),
  });
}

/** Id that is due for a sample, and whether it stands in for another. */
function due({ counts, bad, tables }: Damaged, sample: number): number {
  let first = 0;
  let shard = 0;
  while (sample >= first + counts[shard]!) first += counts[shard++]!;
  const record = sample - first;
  if (!bad[shard]!.has(record)) return sample;
  return first + standIn(tables[shard]!, new Set(bad[shard]!.keys()), record);
}

/** Reads `steps` steps on all ranks from a position on, and compares every row with the rule. */
async function check(
  set: Damaged,
  options: OrderOptions,
  world: number,
  batch: number,
  steps: number,
  from = 0,
): Promise<LedgerEntry[]> {
  const ledger = scratch("ledger");
  const rig = await open(set, options, { batch, world }, ledger);
  try {
    const replaced = new Set<number>();
    const clients = Array.from({ length: world }, (_, rank) =>
      rig.client({ rank, localRanks: Array.from({ length: world }, (_, i) => i), position: from }),
    );
    await Promise.all(
      clients.map(async (client) => {
        for (let step = 0; step < steps; step++) {
          const found = await client.batch(step);
          const samples = found.positions.map((position) => rig.order.sampleAt(position));
          assert.deepEqual(
            found.ids,
            samples.map((sample) => due(set, sample)),
            `step ${step}`,
          );
          const other = samples.filter((sample) => due(set, sample) !== sample);
          assert.equal(found.replaced, other.length);
          other.forEach((sample) => replaced.add(sample));
        }
      }),
    );
    const entries = ledgerOf(ledger);
    const starts = set.counts.map((_, shard) => set.counts.slice(0, shard).reduce((sum, count) => sum + count, 0));
    const shardOf = (path: string): number => Number(path.slice(1, 4));
    const written = entries.map(({ shard, record }) => starts[shardOf(shard)]! + record);
    assert.equal(new Set(written).size, written.length, "each once");
    // Read ahead, so there may be more than was handed out.
    for (const sample of replaced) assert.ok(written.includes(sample), `${sample} is not in the ledger`);
    for (const { source, shard, record, replacement, code } of entries) {
      const start = starts[shardOf(shard)]!;
      assert.deepEqual([source, replacement.shard], ["data", shard]);
      assert.equal(start + replacement.record, due(set, start + record));
      assert.match(code, /^ATH_RECORD_(CRC|TRUNCATED|TOO_LONG)$/);
    }
    assert.equal(rig.source.clocks.badRecords, entries.length);
    return entries;
  } finally {
    await rig.close();
  }
}

const impatient = { lanes: 3, window: 40 };
const modes: [string, OrderOptions][] = [
  ["windows", { seed: 5n, globalBatch: 24, ...impatient }],
  ["held", { seed: 5n, globalBatch: 24 }],
  ["global by small reads", { seed: 5n, globalBatch: 24, shuffle: "global", shuffleMemory: 1 }],
  ["not shuffled", { seed: 5n, globalBatch: 24, shuffle: "none" }],
];

test("random damage: every row is the record or what the rule says, in every order, at world sizes 1 to 4, from any position", async () => {
  const tables = await tablesOf(plain, COUNTS);
  const kind = fc.constantFrom<Kind>("payload", "crc", "length", "length crc");
  const hits = fc.array(fc.tuple(fc.nat(N), kind), { minLength: 1, maxLength: 30 });
  await fc.assert(
    fc.asyncProperty(
      hits,
      fc.constantFrom(...modes),
      fc.integer({ min: 1, max: 4 }),
      fc.nat(24),
      async (list, [, options], world, start) => {
        const bad = COUNTS.map(() => new Map<number, Kind>());
        // One damaged length in each stretch of 64, so that exactly the damaged records are bad (survey.test.ts has the rest).
        const stretches = new Set<string>();
        for (const [at, what] of list) {
          const shard = at < 330 ? 0 : 3;
          const record = (at < 330 ? at : at - 331) % COUNTS[shard]!;
          const table = tables[shard]!;
          const block = table.firstRecord.findIndex(
            (first, b) => first <= record && record < table.firstRecord[b + 1]!,
          );
          const stretch = `${shard} ${block} ${Math.floor((record - table.firstRecord[block]!) / 64)}`;
          if (what.startsWith("length")) {
            if (stretches.has(stretch)) continue;
            stretches.add(stretch);
          }
          if (record >= 0 && !bad[shard]!.has(record)) bad[shard]!.set(record, what);
        }
        await check({ folder: plain, counts: COUNTS, bad, tables }, options, world, 24 / world, N / 24 + 3, start * 24);
      },
    ),
    { numRuns: 12 },
  );
});

test("streams: bad records inside a sound gzip are replaced alike", async () => {
  const counts = [200, 40, 60];
  // Damage inside the stream: the shard is written anew, compressed, under an index of the sound records.
  const tables = await tablesOf(streams, counts);
  const bad = [
    new Map<number, Kind>([
      [3, "crc"],
      [139, "payload"],
      [199, "length"],
    ]),
    new Map<number, Kind>([[39, "payload"]]),
    new Map<number, Kind>([[0, "crc"]]),
  ];
  const { gunzipSync, gzipSync } = await import("node:zlib");
  const ledger = scratch("ledger");
  const copy = scratch("bad");
  cpSync(streams, copy, { recursive: true, preserveTimestamps: true });
  const rewrite = (): void => {
    for (const shard of [0, 1]) {
      const path = join(copy, name(shard));
      const { size, atime, mtime } = statSync(path);
      writeFileSync(path, gunzipSync(readFileSync(path)));
      damage(copy, shard, bad[shard]!);
      const packed = gzipSync(readFileSync(path));
      assert.ok(packed.length <= size + 64);
      // Zeros behind a stream are padding, and the index was made with some.
      writeFileSync(path, Buffer.concat([packed, Buffer.alloc(size - packed.length)]));
      utimesSync(path, atime, mtime);
    }
    damage(copy, 2, bad[2]!);
  };
  for (const shard of [0, 1]) {
    const path = join(copy, name(shard));
    writeFileSync(path, Buffer.concat([readFileSync(path), Buffer.alloc(256)]));
    utimesSync(path, 1e9, 1e9); // a time that utimes can set again
  }
  const set = { folder: copy, counts, bad, tables };
  const rig = await Rig.open(
    copy,
    { seed: 5n, globalBatch: 20, lanes: 2, window: 30 },
    { batch: 20, world: 1, ledger, indexed: rewrite },
  );
  try {
    const client = rig.client({ rank: 0 });
    for (let step = 0; step < 32; step++) {
      const found = await client.batch(step);
      assert.deepEqual(
        found.ids,
        found.positions.map((position) => due(set, rig.order.sampleAt(position))),
      );
    }
    assert.equal(ledgerOf(ledger).length, 5);
  } finally {
    await rig.close();
  }
});

test("a block without a good record: the block before stands in, by number; a shard without one is an error", async () => {
  const tables = await tablesOf(plain, COUNTS);
  const table = tables[0]!;
  const all = (from: number, to: number): Map<number, Kind> =>
    new Map(Array.from({ length: to - from }, (_, i) => [from + i, "payload"]));
  for (const block of [0, 1, table.blocks - 1]) {
    const bad = [all(table.firstRecord[block]!, table.firstRecord[block + 1]!), new Map(), new Map(), new Map()];
    await check({ folder: plain, counts: COUNTS, bad, tables }, modes[0]![1], 2, 12, N / 24 + 1);
  }
  const bad = [
    new Map<number, Kind>(),
    new Map<number, Kind>([[0, "payload"]]),
    new Map<number, Kind>(),
    new Map<number, Kind>(),
  ];
  const rig = await open(
    { folder: plain, counts: COUNTS, bad, tables },
    modes[3]![1],
    { batch: 24, world: 1 },
    scratch("ledger"),
  );
  try {
    const client = rig.client({ rank: 0 });
    const read = async (): Promise<void> => {
      for (let step = 0; step < 20; step++) await client.batch(step);
    };
    await assert.rejects(read, { code: "ATH_NO_GOOD_RECORD" });
  } finally {
    await rig.close();
  }
});

test("the quota counts distinct records over starts, names file and record, and what was refused is not in the ledger", async () => {
  const tables = await tablesOf(plain, COUNTS);
  const bad = [
    new Map<number, Kind>([
      [10, "payload"],
      [11, "crc"],
      [200, "crc"],
    ]),
    new Map<number, Kind>(),
    new Map<number, Kind>(),
    new Map<number, Kind>(),
  ];
  const ledger = scratch("ledger");
  const epoch = async (quota: number, steps: number): Promise<void> => {
    const rig = await open(
      { folder: plain, counts: COUNTS, bad, tables },
      modes[3]![1],
      { batch: 24, world: 1, quota },
      ledger,
    );
    try {
      const client = rig.client({ rank: 0 }, 1);
      for (let step = 0; step < steps; step++) await client.batch(step);
    } finally {
      await rig.close();
    }
  };
  // Which block is read first is not said.
  for (const quota of [1, 2]) {
    await assert.rejects(epoch(quota, N / 24), (error: { code: string; message: string }) => {
      assert.equal(error.code, "ATH_QUARANTINE_QUOTA");
      assert.match(
        error.message,
        /s000\.tfrecord, record (10|200), byte \d+: \d bad records .* at most [12] may be: record (10, 11|200)/,
      );
      return true;
    });
    assert.ok(ledgerOf(ledger).length <= quota);
  }
  // Two epochs and three starts: the same records count once.
  await epoch(3, (2 * N) / 24);
  assert.deepEqual(
    ledgerOf(ledger)
      .map(({ record }) => record)
      .sort((a, b) => a - b),
    [10, 11, 200],
  );
});
