// `npm run test:sessions -- --count 10000`: the set-up, then sessions opened and closed on one agent, and what of them stays
// (test/fault/sessions.py). Exit 1 when something grows. About 2 minutes on two cores.
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { ensureSetup, main, root } from "./setup.mjs";

await main(async () => {
  const { python, env } = await ensureSetup();
  const args = [join(root, "test", "fault", "sessions.py"), ...process.argv.slice(2)];
  return spawnSync(python, args, { env, stdio: "inherit" }).status ?? 1;
});
