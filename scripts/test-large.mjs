// `npm run test:large [-- --only parquet --gigabytes 2]`: the set-up, then large shards in little memory (test/large/large.py, which
// knows the options). Exit 1 when index or agent take more than 600 MB. Half an hour and 10 GB of disk at full size.
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { ensureSetup, main, root } from "./setup.mjs";

await main(async () => {
  const { python, env } = await ensureSetup();
  const args = [join(root, "test", "large", "large.py"), ...process.argv.slice(2)];
  return spawnSync(python, args, { env, stdio: "inherit" }).status ?? 1;
});
