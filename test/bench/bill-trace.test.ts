import assert from "node:assert/strict";
import { test } from "node:test";
import { metadataOf, minus, parseTrace } from "../../src/bench/bill-trace.ts";

const PLACES = { files: ["/d/a.tfrecord", "/d/b.tfrecord"], folder: "/d", index: "/d/.athanor" };

test("calls of data, index and folders; interrupted ones are joined and count once; failed ones count", () => {
  const found = parseTrace(
    [
      '71 openat(AT_FDCWD</home/u>, "/d/a.tfrecord", O_RDONLY|O_CLOEXEC) = 17</d/a.tfrecord>',
      '71 statx(17</d/a.tfrecord>, ""..., AT_STATX_SYNC_AS_STAT|AT_EMPTY_PATH, STATX_ALL, {stx_mask=STATX_ALL}) = 0',
      '71 pread64(17</d/a.tfrecord>, ""..., 4194304, 0) = 4194304',
      "72 pread64(17</d/a.tfrecord>,  <unfinished ...>",
      '71 openat(AT_FDCWD</home/u>, "/d/.athanor/shards.bin", O_RDONLY) = 18</d/.athanor/shards.bin>',
      '71 read(18</d/.athanor/shards.bin>, ""..., 512) = 300',
      '72 <... pread64 resumed>""..., 4194304, 4194304) = 1000',
      "71 close(18</d/.athanor/shards.bin>) = 0",
      '71 newfstatat(AT_FDCWD</home/u>, "/d/b.tfrecord", 0x7ffe, 0) = -1 ENOENT (No such file or directory)',
      '71 openat(AT_FDCWD</home/u>, "/d", O_RDONLY|O_DIRECTORY) = 19</d>',
      "71 getdents64(19</d>, 0x55 /* 4 entries */, 32768) = 104",
      '71 pread64(20</usr/lib/x.so>, ""..., 784, 64) = 784',
      '71 read(3</d/b.tfrecord>, ""..., 100) = -1 EIO (Input/output error)',
      "71 close(17</d/a.tfrecord> <unfinished ...>",
      "71 <... close resumed>) = 0",
      "71 +++ exited with 0 +++",
    ].join("\n"),
    PLACES,
  );
  assert.deepEqual(found.data, { opens: 1, closes: 1, stats: 1, lists: 0, fstats: 1, reads: 3, bytes: 4_195_304 });
  assert.deepEqual(found.index, { opens: 1, closes: 1, stats: 0, lists: 0, fstats: 0, reads: 1, bytes: 300 });
  assert.deepEqual(found.folders, { opens: 1, closes: 0, stats: 0, lists: 1, fstats: 0, reads: 0, bytes: 0 });
  assert.equal(metadataOf(found.data), 3);
  assert.equal(minus(found.data, found.index).reads, 2);
});

test("paths that strace escapes are those of the data (its lines of version 6.1)", () => {
  const file = '/d/ö "x>y<z/a\tb\nc.txt';
  const quoted = '/d/\\303\\266 \\"x>y<z/a\\tb\\nc.txt';
  const opened = '/d/\\303\\266 \\"x\\76y\\74z/a\\tb\\nc.txt';
  const found = parseTrace(
    [
      `24900 openat(AT_FDCWD</home/u>, "${quoted}", O_RDONLY|O_CLOEXEC) = 18<${opened}>`,
      `24900 read(18<${opened}>, ""..., 10) = 3`,
      `24900 close(18<${opened}>) = 0`,
    ].join("\n"),
    { files: [file], folder: "/d", index: "/d/.athanor" },
  );
  assert.deepEqual(found.data, { opens: 1, closes: 1, stats: 0, lists: 0, fstats: 0, reads: 1, bytes: 3 });
});
