import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";

/** Waits until `what` holds, for 20 s at most. */
export async function until(what: () => boolean): Promise<void> {
  for (const end = Date.now() + 20_000; !what(); await sleep(5)) assert.ok(Date.now() < end, "did not come to pass");
}
