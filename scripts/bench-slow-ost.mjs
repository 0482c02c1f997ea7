// `npm run bench:slow-ost [-- --rounds 3 --seconds 6 --delay-ms 40]`: shards on eight targets, one of them ten times slower. How fast
// the other seven are read meanwhile, beside all eight healthy, and does the report name the slow one? Over FUSE (test/fault/faultfs.py), where
// each read of 1 MiB takes a set time: nothing of it depends on disks, and little on the processor. Exit code 1: below the bar, or not named.
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createConnection } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { ensureSetup, main, root } from "./setup.mjs";

const BAR = 0.8;
const TARGETS = 8;
const SLOW = 3;
const TIMES = 10;
const MIB = 1 << 20;
const FILE_MIB = 16;

await main(async () => {
  const { values } = parseArgs({
    options: {
      rounds: { type: "string", default: "3" },
      seconds: { type: "string", default: "6" },
      "delay-ms": { type: "string", default: "40" },
    },
  });
  const [rounds, seconds, delayMs] = [values.rounds, values.seconds, values["delay-ms"]].map(Number);
  const { python, env } = await ensureSetup();
  const { createPosixStorage } = await import(join(root, "dist", "src", "storage", "posix.js"));
  const folder = mkdtempSync(join(tmpdir(), "slow-ost-"));
  const mount = join(folder, "mount");
  mkdirSync(join(folder, "real"));
  mkdirSync(mount);
  for (let ost = 0; ost < TARGETS; ost++)
    writeFileSync(join(folder, "real", `${ost}`), Buffer.alloc(FILE_MIB * MIB, ost));
  const socket = join(folder, "socket");
  const server = spawn(python, [join(root, "test/fault/faultfs.py"), join(folder, "real"), mount, socket], {
    env,
    stdio: "ignore",
  });
  const tell = (message) =>
    new Promise((resolve, reject) => {
      const peer = createConnection(socket, () => peer.write(`${JSON.stringify(message)}\n`));
      peer.once("data", resolve);
      peer.once("error", reject);
    });

  /** MiB/s of the seven others, and which target the report calls slow. */
  async function measure(slowTimes, known) {
    await tell({});
    for (let ost = 0; ost < TARGETS; ost++) {
      const times = ost === SLOW ? slowTimes : 1;
      await tell({ call: "read", path: `${ost}`, delay: (delayMs * times) / 1000 });
    }
    const storage = createPosixStorage(known ? { targetsOf: (path) => [`fs-OST000${path.at(-1)}`] } : {});
    const end = performance.now() + seconds * 1000;
    let others = 0;
    const reader = async (ost, first) => {
      const buffer = new SharedArrayBuffer(MIB);
      for (let k = first; performance.now() < end; k++) {
        await storage.readShared(join(mount, `${ost}`), undefined, buffer, 0, (k % FILE_MIB) * MIB, MIB);
        if (ost !== SLOW && performance.now() < end) others++;
      }
    };
    const readers = [];
    for (let ost = 0; ost < TARGETS; ost++)
      for (let k = 0; k < (ost === SLOW ? 4 : 2); k++) readers.push(reader(ost, k * 4));
    await Promise.all(readers);
    const named = storage.stats().targets.filter(({ slower }) => slower !== undefined);
    await storage.close();
    return { rate: others / seconds, named };
  }

  try {
    for (const end = Date.now() + 20_000; ; await sleep(50)) {
      if (server.exitCode !== null || Date.now() > end)
        throw new Error(
          "the file system that is slow on request did not start: is there /dev/fuse, fuse3 and mfusepy?",
        );
      if (
        await tell({ ask: "held" }).then(
          () => true,
          () => false,
        )
      )
        break;
    }
    await sleep(300);
    const runs = { healthy: [], slow: [], unknown: [] };
    let named = true;
    for (let round = 0; round < rounds; round++) {
      const healthy = await measure(1, true);
      const slow = await measure(TIMES, true);
      const unknown = await measure(TIMES, false);
      runs.healthy.push(healthy.rate);
      runs.slow.push(slow.rate);
      runs.unknown.push(unknown.rate);
      const found = slow.named.map(({ target, slower }) => `${target} ${slower} times`).join(", ") || "nobody";
      named &&= slow.named.length === 1 && slow.named[0].target === `fs-OST000${SLOW}` && healthy.named.length === 0;
      console.log(
        `round ${round + 1}: the seven others ${healthy.rate.toFixed(1)} MiB/s healthy, ${slow.rate.toFixed(1)} beside the slow one, ` +
          `${unknown.rate.toFixed(1)} where places are not known; called slow: ${found}`,
      );
    }
    const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];
    const ratio = median(runs.slow) / median(runs.healthy);
    console.log(
      `medians ${median(runs.healthy).toFixed(1)} and ${median(runs.slow).toFixed(1)} MiB/s: ratio ${ratio.toFixed(2)}, bar ${BAR} ` +
        `(${(median(runs.unknown) / median(runs.healthy)).toFixed(2)} where places are not known); the report ${named ? "names the slow target and no other" : "DOES NOT name the slow target alone"}`,
    );
    return ratio >= BAR && named ? 0 : 1;
  } finally {
    await tell({}).catch(() => undefined);
    await new Promise((resolve) =>
      spawn("fusermount3", ["-u", "-z", mount], { stdio: "ignore" }).once("close", resolve).once("error", resolve),
    );
    server.kill();
    rmSync(join(folder, "real"), { recursive: true });
    rmSync(folder, { recursive: true, force: true });
  }
});
