import assert from "node:assert/strict";
import { test } from "node:test";
import { Worker } from "node:worker_threads";
import { Decoders } from "../../src/feed/decoders.ts";
import { GroupMemory, MemoryPool } from "../../src/feed/memory.ts";

test("a thousand runs in one memory tell a decode thread of it once: each instance stays in its heap for minutes", async () => {
  const sent: { type: string; memory?: unknown }[] = [];
  const { postMessage } = Worker.prototype;
  Worker.prototype.postMessage = function (this: Worker, message: { type: string }, ...more: []) {
    sent.push(message);
    postMessage.call(this, message, ...more);
  };
  const decoders = new Decoders(2);
  try {
    const pool = new MemoryPool();
    for (let run = 1; run <= 1000; run++) {
      const memory = new GroupMemory(pool, 64, 100, 4096);
      decoders.attach(run, memory, []);
      decoders.detach(run);
      pool.release(memory.kernels);
    }
    const count = (type: string): number => sent.filter((message) => message.type === type).length;
    assert.deepEqual(["memory", "attach", "detach"].map(count), [2, 2000, 2000]);
    assert.ok(sent.every(({ type, memory }) => type === "memory" || !(memory instanceof WebAssembly.Memory)));
  } finally {
    Worker.prototype.postMessage = postMessage;
    await decoders.close();
  }
});
