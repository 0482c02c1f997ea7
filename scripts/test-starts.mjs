// `npm run test:starts [-- --clients 64 --shards 10000]`: the set-up, then many processes that start on many shards, and what they ask of
// the file system (test/fault/starts.py; needs strace). Exit 1 when that is more than it should be. Some five minutes on two cores.
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { ensureSetup, main, root } from "./setup.mjs";

await main(async () => {
  const { python, env } = await ensureSetup();
  const args = [join(root, "test", "fault", "starts.py"), ...process.argv.slice(2)];
  return spawnSync(python, args, { env, stdio: "inherit" }).status ?? 1;
});
