// Shards that the tests of damage start from (`npm run test:hostile`).
import type { TestShard } from "../blocks.ts";
import { pair } from "../tokens/write.ts";

export function hostileShards(): TestShard[] {
  const tokens = Array.from({ length: 500 }, (_, i) => (i * 7919) % 30000);
  return [
    pair("a", [tokens.slice(0, 100), [], tokens.slice(100, 101), tokens], "u2", [0, 3]),
    pair("b", [tokens, tokens.slice(0, 50), []], "i4", [], true),
    pair("c", [tokens], "i8"),
  ];
}
