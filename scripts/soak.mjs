// `npm run soak [-- --minutes 60]`: the set-up, then a long job and what grows in it (test/fault/soak.py, which knows the
// other options). Exit 1 when memory, descriptors, threads or mappings of agent or client rise. Takes a tenth of a core.
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { ensureSetup, main, root } from "./setup.mjs";

await main(async () => {
  const { python, env } = await ensureSetup();
  const args = [join(root, "test", "fault", "soak.py"), ...process.argv.slice(2)];
  return spawnSync(python, args, { env, stdio: "inherit" }).status ?? 1;
});
