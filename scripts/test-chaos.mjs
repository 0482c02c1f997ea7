// `npm run test:chaos -- --trials 200 --seed S`: the set-up, then random kills of agent and ranks (test/fault/chaos.py, which
// knows the other options). Exit 1 when a trial failed. About 4 s a trial on two cores.
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { ensureSetup, main, root } from "./setup.mjs";

await main(async () => {
  const { python, env } = await ensureSetup();
  const args = [join(root, "test", "fault", "chaos.py"), ...process.argv.slice(2)];
  return spawnSync(python, args, { env, stdio: "inherit" }).status ?? 1;
});
