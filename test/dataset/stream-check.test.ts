import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { AthanorError } from "../../src/base/errors.ts";
import { buildIndex } from "../../src/dataset/index-build.ts";
import { readRecords } from "../../src/dataset/records.ts";
import { blameStream } from "../../src/dataset/stream-check.ts";
import { RecordMalformed } from "../../src/formats/errors.ts";
import { createKernels } from "../../src/kernels/load.ts";
import { createPosixStorage } from "../../src/storage/posix.ts";
import { generator } from "../formats/damage.ts";
import { idRecords, shard } from "./shards.ts";

const HEADER = 10;
const TRAILER = 8;

async function readAll(records: AsyncIterable<unknown>): Promise<void> {
  for await (const record of records) void record;
}

test("a bit that flips in a compressed shard was called a bad record, and the shard written badly", async () => {
  const folder = mkdtempSync(join(tmpdir(), "athanor-stream-check-"));
  const storage = createPosixStorage();
  const random = generator(7);
  // Text that decompresses whatever flips: literals without a code of their own.
  const lines = Array.from({ length: 200 }, () => `{"id":${random(1e9)},"text":"${random(2 ** 31)}"}\n`).join("");
  const records = shard(idRecords(0, 200).map((features) => ({ ...features, x: [random(1e9)] })));
  try {
    for (const [name, bytes] of [
      ["a.jsonl.gz", gzipSync(lines)],
      ["a.tfrecord.gz", gzipSync(records)],
    ] as const) {
      const file = join(folder, name);
      for (let i = 0; i < 40; i++) {
        const damaged = Buffer.from(bytes);
        damaged[HEADER + random(bytes.length - HEADER - TRAILER - 1)]! ^= 1 << random(8);
        writeFileSync(file, damaged);
        storage.forget();
        const isStreamFault = (error: unknown): boolean =>
          error instanceof AthanorError && error.code === "ATH_STREAM_CORRUPT" && error.where.file === file;
        await assert.rejects(buildIndex(file, { storage, write: false }), isStreamFault, `${name} ${i}`);
        await assert.rejects(readAll(readRecords(file, { storage })), isStreamFault, `${name} ${i}`);
      }
    }
    // What was compressed as it is, is no damage of the stream.
    const file = join(folder, "b.jsonl.gz");
    writeFileSync(file, gzipSync(`${lines}{"id":}\n`));
    await assert.rejects(buildIndex(file, { storage, write: false }), { code: "ATH_RECORD_MALFORMED" });
  } finally {
    await storage.close();
    rmSync(folder, { recursive: true, force: true });
  }
});

test("a shard is decompressed no further than the limit to tell whom to blame: a small one may hold terabytes", async () => {
  const folder = mkdtempSync(join(tmpdir(), "athanor-stream-check-"));
  const storage = createPosixStorage();
  const file = join(folder, "a.jsonl.gz");
  const bytes = gzipSync("{}\n".repeat(1e6));
  bytes[bytes.length - TRAILER]! ^= 1;
  writeFileSync(file, bytes);
  const object = await storage.open(file);
  try {
    const error = new RecordMalformed("bad", { file, record: 1 });
    const kernels = createKernels(1 << 22);
    assert.equal(await blameStream(object, file, error, kernels, 1e6), error);
    assert.equal(((await blameStream(object, file, error, kernels)) as AthanorError).code, "ATH_STREAM_CORRUPT");
  } finally {
    await object.close();
    await storage.close();
    rmSync(folder, { recursive: true, force: true });
  }
});
