// Run by hostile.test.ts: a format that never returns from a damaged shard.
import { hostile } from "./hostile.ts";
import { bytesAsInts, shard, toy } from "./toy.ts";

const forever = toy((bytes, records) => {
  while (bytes.length !== 200) {}
  return bytesAsInts(bytes, records);
});
await hostile(forever, [shard], 50, { seed: 7, hangMs: 500 });
