// Gathering: files that never answer cost themselves only, and nothing is asked that could hang a server call.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { readFacts } from "../../src/doctor/read-facts.ts";
import { PATTERNS } from "../../src/doctor/watched.ts";
import { MAIN, athanor } from "../cli/athanor.ts";
import { Node, TOOLS } from "./scene.ts";

test("a file that never answers: the others are read, and it is named", async (t) => {
  const root = mkdtempSync(join(tmpdir(), "athanor-doctor-"));
  t.after(() => rmSync(root, { recursive: true }));
  const put = (path: string, text: string): void => {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  };
  put("proc/self/limits", "limits\n");
  put("proc/self/cgroup", "0::/job\n");
  put("sys/fs/cgroup/job/memory.max", "4096\n");
  put("sys/class/infiniband/mlx5_0/ports/1/rate", "100 Gb/sec\n");
  // Nobody ever writes into it.
  execFileSync("mkfifo", [join(root, "sys/class/infiniband/mlx5_0/ports/1/state")]);
  const { files, silentFiles, spaces } = await readFacts(root, ["/", join(root, "none")], 100);
  assert.deepEqual(silentFiles, ["sys/class/infiniband/mlx5_0/ports/1/state"]);
  assert.deepEqual(
    ["proc/self/limits", "sys/fs/cgroup/job/memory.max", "sys/class/infiniband/mlx5_0/ports/1/rate"].map((path) =>
      files.get(path),
    ),
    ["limits", "4096", "100 Gb/sec"],
  );
  assert.ok("total" in spaces.get("/")!);
  assert.deepEqual(spaces.get(join(root, "none")), { code: "ENOENT" });
});

test("limits are those of the shell, not the ones that Node has raised for itself", () => {
  const line = 'ulimit -Sn 1000; "$0" "$1" doctor --json; true';
  const stdout = execFileSync("bash", ["-c", line, process.execPath, MAIN], { encoding: "utf8" });
  const { findings } = JSON.parse(stdout) as { findings: { id: string; evidence: string }[] };
  assert.match(
    findings.find(({ id }) => id === "limit-open-files")!.evidence,
    /^\/proc\/\d+\/limits: Max open files 1 000$/,
  );
});

test("no file is read whose reading asks a server", () => {
  const asking = /kbytes|files(free|total)|blocksize|\bping\b|\/statfs|stat_blocksize/;
  assert.deepEqual(
    PATTERNS.filter((pattern) => asking.test(pattern)),
    [],
  );
});

test("nothing that tools are asked for changes anything", async (t) => {
  const node = new Node(t, {});
  await node.facts({}, { path: node.replay.folder });
  const calls = node.replay
    .calls()
    .map((call) => call.replace(/ \d+/g, " N").replaceAll(node.replay.folder, "/mnt/lustre"));
  assert.deepEqual([...new Set(calls)].sort(), [
    "df -i /mnt/lustre",
    "df /mnt/lustre",
    "dmesg",
    "lctl get_param osc.*.import",
    "lctl get_param osc.*.stats",
    "lctl list_nids",
    "lnetctl net show -v",
    "osts /mnt/lustre",
    "project -d /mnt/lustre",
    "quota -g N /mnt/lustre",
    "quota -u N /mnt/lustre",
  ]);
});

test("the command: exit codes, --json, --site-config, a path that is not there", (t) => {
  const full = new Node(t, {
    lfs: {
      ...TOOLS,
      "df /mnt/lustre": {
        stdout: TOOLS["df /mnt/lustre"]!.stdout!.replace(" 1% ", " 99% ").replace(
          /2875092 +1392 +2700032/,
          "2875092 2870000 10",
        ),
      },
    },
  });
  const ran = full.replay.athanor("doctor", "--json");
  const report = JSON.parse(ran.stdout) as {
    wrong: boolean;
    findings: { id: string; severity: string; evidence: string; fix: string; source: string }[];
    settings: { line: string }[];
  };
  assert.equal(ran.code, 1);
  assert.equal(report.wrong, true);
  const found = report.findings.find(({ id }) => id === "target-full");
  assert.deepEqual(Object.keys(found!), ["id", "severity", "what", "evidence", "fix", "source"]);
  assert.deepEqual(
    report.settings.map(({ line }) => line),
    ["lctl set_param osc.lustre-OST*.max_rpcs_in_flight=32"],
  );
  const site = full.replay.athanor("doctor", "--site-config");
  assert.equal(site.code, 0);
  assert.match(site.stdout, /^# risk: .*\n# undo: .*\nlctl set_param osc\.lustre-OST\*\.max_rpcs_in_flight=32$/m);
  assert.equal(athanor("doctor", "/no-such-folder-here", "--json").error().code, "ATH_NOT_FOUND");
  for (const flags of [
    ["--timeout", "soon"],
    ["--timeout", "0"],
    ["--loader-timeout", "x"],
    ["--json", "--site-config"],
  ])
    assert.equal(athanor("doctor", ...flags).code, 2, flags.join(" "));
});

test("this machine: what is told of it is so", () => {
  const ran = athanor("doctor", "--json");
  const { looked, wrong } = JSON.parse(ran.stdout) as { wrong: boolean; looked: { area: string; seen: string[] }[] };
  assert.equal(ran.code, wrong ? 1 : 0);
  const seen = (area: string): string => looked.find((one) => one.area === area)!.seen.join("\n");
  assert.match(seen("versions"), new RegExp(`Node ${process.versions.node.replaceAll(".", "\\.")}`));
  const online = execFileSync("getconf", ["_NPROCESSORS_ONLN"], { encoding: "utf8" }).trim();
  assert.match(seen("CPUs"), new RegExp(`^${online} CPU`));
});
