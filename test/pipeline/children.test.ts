import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { agentsOf, Children } from "../../src/pipeline/children.ts";

const dir = mkdtempSync(join(tmpdir(), "athanor-children-"));
after(() => rmSync(dir, { recursive: true }));

const alive = (pid: number): boolean => {
  try {
    // A zombie still answers to signal 0: it waits for a parent that may be slow, and runs no more.
    return !readFileSync(`/proc/${pid}/stat`, "utf8").includes(") Z ");
  } catch {
    return false;
  }
};

async function gone(pid: number): Promise<boolean> {
  for (let tries = 0; tries < 200 && alive(pid); tries++) await new Promise((resolve) => setTimeout(resolve, 10));
  return !alive(pid);
}

test("both outputs arrive by lines, in the log too, and the exit code is returned", async () => {
  const children = new Children(join(dir, "a.log"));
  const lines: string[] = [];
  const code = await children.run("sh", ["-c", "echo one; echo two >&2; printf three; exit 3"], {
    onLine: (line) => lines.push(line),
  });
  assert.equal(code, 3);
  assert.deepEqual(lines.sort(), ["one", "three", "two"]);
  assert.deepEqual(children.tail(9).split("\n").sort(), ["one", "three", "two"]);
});

test("kill ends what the child has started, too", async () => {
  const children = new Children(join(dir, "b.log"));
  let grandchild = 0;
  const code = await children.run("sh", ["-c", "sleep 100 & echo $!; wait"], {
    onLine: (line, kill) => {
      grandchild = Number(line);
      kill();
    },
  });
  assert.equal(code, -1);
  assert.ok(grandchild > 0);
  assert.ok(await gone(grandchild));
});

test("killAll ends the running ones", async () => {
  const children = new Children(join(dir, "c.log"));
  const ended = children.run("sleep", ["100"]);
  children.killAll();
  assert.equal(await ended, -1);
});

test("a command that does not exist is an error", async () => {
  await assert.rejects(new Children(join(dir, "d.log")).run(join(dir, "nothing"), []), { code: "ENOENT" });
});

test("agents are found by their job", () => {
  const proc = join(dir, "proc");
  const command: Record<string, string> = {
    "11": "athanor-agent mine\0\0\0",
    "12": "athanor-agent mine-too\0",
    "13": "vi\0athanor-agent mine\0",
  };
  for (const [pid, words] of Object.entries(command)) {
    mkdirSync(join(proc, pid), { recursive: true });
    writeFileSync(join(proc, pid, "cmdline"), words);
  }
  mkdirSync(join(proc, "15"));
  mkdirSync(join(proc, "sys"));
  assert.deepEqual(agentsOf("mine", proc), [11]);
});
