// Shards that the tests of damage start from (`npm run test:hostile`).
import { shardOf, type TestShard } from "../blocks.ts";
import { npyFile } from "../tokens/write.ts";

export function hostileShards(): TestShard[] {
  const tokens = Array.from({ length: 500 }, (_, i) => (i * 7919) % 30000);
  return ["u2", "i4", "i8"].map((type) => shardOf(`${type}.npy`, npyFile(tokens, type)));
}
