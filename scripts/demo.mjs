// `npm run demo [-- --quick]`: set-up, then `athanor demo` with the environment's Python.
import { spawn } from "node:child_process";
import { join } from "node:path";
import { ensureSetup, main, root } from "./setup.mjs";

await main(async () => {
  const { env } = await ensureSetup();
  const args = [join(root, "dist", "src", "cli", "main.js"), "demo", ...process.argv.slice(2)];
  const child = spawn(process.execPath, args, { env, stdio: "inherit" });
  // Ctrl-C reaches the child through the terminal; it cleans up and we leave with its code.
  process.removeAllListeners("SIGINT").on("SIGINT", () => {});
  process.removeAllListeners("SIGTERM").on("SIGTERM", () => child.kill("SIGTERM"));
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code, signal) => resolve(code ?? (signal === "SIGINT" ? 130 : 143)));
  });
});
