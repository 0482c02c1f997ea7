/**
 * A Lustre for the command line, out of recordings: a folder that /proc/self/mountinfo calls a Lustre mount, files in it whose layouts are
 * real xattrs under another name, an `lfs` that answers from recorded texts, a Python in which calls on chosen files never return.
 */
import { spawn, spawnSync } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import type { TestContext } from "node:test";
import { delimiter, dirname, join } from "node:path";
import { reportText } from "../../src/lustre/report-text.ts";
import { layoutReport } from "../../src/lustre/report.ts";
import type { ReportOptions } from "../../src/lustre/report.ts";
import { createPosixStorage } from "../../src/storage/posix.ts";
import { MAIN } from "../cli/athanor.ts";
import { FIXTURES, recorded } from "./fixtures.ts";

export interface ReplayFile {
  size: number;
  /** The xattr; undefined: it has none. */
  lov?: Uint8Array;
  /** Other xattrs. */
  xattrs?: Record<string, string>;
  /** A size is never told: the file lies on an OST that is gone. In the folder `lost` xattrs are not told either. */
  hangs?: boolean;
}

export interface Recording {
  stdout?: string;
  stderr?: string;
  status?: number;
  hang?: boolean;
  /** What stands behind each path of the arguments, by path, `*` for all others. */
  each?: Record<string, string>;
  /**
   * `lfs migrate`: lays the file on the OST behind `-o`, really, and then does that to it: nothing, other bytes under the same mtime, another
   * mtime, or lays it on the OST before that one.
   */
  migrates?: "well" | "bytes" | "mtime" | "elsewhere";
  /** Seconds before it does anything. */
  after?: number;
  /** Answers that hold from now on. */
  next?: Record<string, Recording>;
}

export interface Scene {
  files?: Record<string, ReplayFile>;
  /** By the arguments of `lfs`, with /mnt/lustre as the mount; of other tools with their name in front (`lctl list_nids`). */
  lfs?: Record<string, Recording> | undefined;
  /** @default 2.17.0 */
  version?: string;
  /** Line of mountinfo behind the mount point. @default Lustre over TCP */
  system?: string;
  /** @default true */
  python?: boolean;
  /** Files of /sys/fs/lustre. */
  sys?: Record<string, string>;
  /** Files of /proc and /sys, by path without the leading slash. */
  host?: Record<string, string>;
}

export interface Replayed {
  code: number | null;
  /** With the folder called /mnt/lustre. */
  stdout: string;
  stderr: string;
}

const PYTHON = process.env["ATHANOR_PYTHON"] ?? "python3";

export class Replay {
  readonly folder: string;
  private readonly base: string;
  private readonly env: NodeJS.ProcessEnv;

  constructor(scene: Scene) {
    this.base = realpathSync(mkdtempSync(join(tmpdir(), "athanor-lustre-")));
    this.folder = join(this.base, "mount");
    const root = join(this.base, "root");
    const bin = join(this.base, "bin");
    for (const path of [this.folder, bin, join(root, "proc/self")]) mkdirSync(path, { recursive: true });
    const system = scene.system ?? "lustre 10.0.2.15@tcp:/lustre rw,checksum,flock,lazystatfs";
    const memory = "30 21 0:27 / /dev/shm rw - tmpfs tmpfs rw";
    const mounts = ["21 1 8:1 / / rw - ext4 /dev/vda rw", memory, `44 21 0:44 / ${this.folder} rw - ${system}`];
    writeFileSync(join(root, "proc/self/mountinfo"), `${mounts.join("\n")}\n`);
    const sys = { version: `${scene.version ?? "2.17.0"}\n`, ...scene.sys };
    const below = Object.fromEntries(Object.entries(sys).map(([path, text]) => [`sys/fs/lustre/${path}`, text]));
    for (const [path, text] of Object.entries({ ...below, ...scene.host })) {
      mkdirSync(dirname(join(root, path)), { recursive: true });
      writeFileSync(join(root, path), text);
    }
    const answers = join(this.base, "answers.json");
    writeFileSync(answers, JSON.stringify({ folder: this.folder, answers: scene.lfs ?? {} }));
    const path = [dirname(process.execPath), "/usr/local/bin", "/usr/bin", "/bin"];
    if (scene.lfs !== undefined) path.unshift(this.tools(scene.lfs));
    const python = join(bin, "python");
    const hanging = Object.entries(scene.files ?? {}).flatMap(([name, { hangs }]) => (hangs === true ? [name] : []));
    writeFileSync(python, `#!/bin/sh\nexec ${PYTHON} "$1" "$2" "$3" "$(cat ${join(bin, "patch.py")})\n$4" "$5"\n`);
    writeFileSync(join(bin, "patch.py"), patch(hanging, join(this.base, "asked.log")));
    chmodSync(python, 0o755);
    this.env = {
      ...process.env,
      PATH: path.join(delimiter),
      ATHANOR_PYTHON: scene.python === false ? join(bin, "no-python") : python,
      ATHANOR_HOST_ROOT: root,
      ATHANOR_REPLAY: answers,
    };
    this.write(scene.files ?? {});
  }

  /**
   * A folder with `lfs` and the others: a shell script for plain answers, since a Python for each of some fifteen calls a report takes
   * seconds on a busy machine; what it does not know it leaves to the Python script of the fixtures.
   */
  private tools(answers: NonNullable<Scene["lfs"]>): string {
    const folder = join(this.base, "tools");
    mkdirSync(folder);
    const word = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;
    const here = (text: string): string => text.replaceAll("/mnt/lustre", this.folder);
    const log = word(join(this.base, "answers.json.log"));
    const all = Object.entries(answers);
    // Whole lines before first words.
    const sorted = [...all.filter(([key]) => key.includes(" ")), ...all.filter(([key]) => !key.includes(" "))];
    const cases = sorted.map(([key, { stdout = "", stderr = "", status = 0, hang, each, migrates }], i) => {
      const asked = word(here(key));
      const pattern = key.includes(" ") ? asked : `${asked}|${asked}\\ *`;
      if (each !== undefined || migrates !== undefined) return `${pattern}) ;;`;
      const [out, err] = [join(folder, `${i}.out`), join(folder, `${i}.err`)];
      writeFileSync(out, here(stdout));
      writeFileSync(err, stderr);
      const end = hang === true ? "exec sleep 600" : `exit ${status}`;
      return `${pattern}) echo "$asked" >> ${log}; cat ${word(out)}; cat ${word(err)} >&2; ${end} ;;`;
    });
    const script = [
      "#!/bin/sh",
      "name=${0##*/}",
      'asked="$name${1:+ }$*"',
      '[ "$name" != lfs ] || asked="$*"',
      // Answers that change what comes behind them need a memory.
      ...(all.every(([, { next }]) => next === undefined) ? ['case "$asked" in', ...cases, "esac"] : []),
      `exec ${word(`${FIXTURES}replay/`)}"$name" "$@"`,
    ];
    const moosefs = Object.keys(answers).flatMap((key) => /^mfs\w+/.exec(key)?.[0] ?? []);
    for (const name of ["lfs", "lctl", "lnetctl", "dmesg", ...moosefs]) {
      writeFileSync(join(folder, name), `${script.join("\n")}\n`);
      chmodSync(join(folder, name), 0o755);
    }
    return folder;
  }

  /** The report as text, made in this process: no command line to start. Not by several tests at a time. */
  async report(path: string, options: Partial<ReportOptions> = {}): Promise<string> {
    const storage = createPosixStorage();
    try {
      const report = await this.inside(() =>
        layoutReport(join(this.folder, path), { storage, advise: false, ...options }),
      );
      return this.plain(`${reportText(report)}\n`);
    } finally {
      await storage.close();
    }
  }

  /** Does `work` in this process as if it ran on the node of the scene. Not by several tests at a time. */
  async inside<Result>(work: () => Promise<Result>): Promise<Result> {
    const before = { ...process.env };
    try {
      Object.assign(process.env, this.env);
      return await work();
    } finally {
      for (const name of Object.keys(this.env)) delete process.env[name];
      Object.assign(process.env, before);
    }
  }

  /** Gives files other layouts. */
  setLayouts(layouts: Record<string, Uint8Array>): void {
    this.setXattrs(
      Object.entries(layouts).map(([name, lov]) => [join(this.folder, name), "lov", Buffer.from(lov).toString("hex")]),
    );
  }

  /** Files whose xattrs were asked for, in order. */
  askedFor(): string[] {
    const log = join(this.base, "asked.log");
    return existsSync(log)
      ? readFileSync(log, "utf8")
          .trimEnd()
          .split("\n")
          .map((path) => this.plain(path))
      : [];
  }

  /** OSTs of files without components, by name. */
  ostsOf(names: readonly string[]): number[] {
    const code =
      "import json,os,struct,sys\nprint([struct.unpack_from('<I', os.getxattr(p, 'user.lov'), 52)[0] for p in json.load(sys.stdin)])";
    const input = JSON.stringify(names.map((name) => join(this.folder, name)));
    return JSON.parse(spawnSync(PYTHON, ["-c", code], { input, encoding: "utf8" }).stdout) as number[];
  }

  /** `athanor layout …` in the background, the first of a group of processes. */
  start(...args: string[]): ChildProcess {
    return spawn(process.execPath, [MAIN, "layout", ...args], {
      env: this.env,
      cwd: this.folder,
      detached: true,
      stdio: "ignore",
    });
  }

  /** `athanor layout …`. */
  run(...args: string[]): Replayed {
    return this.athanor("layout", ...args);
  }

  athanor(...args: string[]): Replayed {
    const ran = spawnSync(process.execPath, [MAIN, ...args], {
      encoding: "utf8",
      timeout: 100_000,
      env: this.env,
      cwd: this.folder,
    });
    return { code: ran.status, stdout: this.plain(ran.stdout), stderr: this.plain(ran.stderr) };
  }

  /** With the folder called /mnt/lustre. */
  plain(text: string): string {
    return text.replaceAll(this.folder, "/mnt/lustre");
  }

  /** How `lfs` was called, a line a call. */
  calls(): string[] {
    const log = join(this.base, "answers.json.log");
    return existsSync(log) ? this.plain(readFileSync(log, "utf8")).trimEnd().split("\n") : [];
  }

  remove(): void {
    // A tool that a test did not wait for may still be writing its log; rmSync's own retries do not look for new files.
    for (let tries = 0; ; tries++) {
      try {
        return rmSync(this.base, { recursive: true });
      } catch (error) {
        if (tries === 20 || (error as NodeJS.ErrnoException).code !== "ENOTEMPTY") throw error;
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50);
      }
    }
  }

  private write(files: Record<string, ReplayFile>): void {
    const set: [path: string, name: string, hex: string][] = [];
    for (const [name, { size, lov, xattrs }] of Object.entries(files)) {
      const path = join(this.folder, name);
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, "");
      truncateSync(path, size);
      if (lov !== undefined) set.push([path, "lov", Buffer.from(lov).toString("hex")]);
      for (const [key, text] of Object.entries(xattrs ?? {})) set.push([path, key, Buffer.from(text).toString("hex")]);
    }
    this.setXattrs(set);
  }

  private setXattrs(set: readonly (readonly [path: string, name: string, hex: string])[]): void {
    const code = "import json,os,sys\nfor p,k,v in json.load(sys.stdin): os.setxattr(p, 'user.' + k, bytes.fromhex(v))";
    const ran = spawnSync(PYTHON, ["-c", code], { input: JSON.stringify(set), encoding: "utf8" });
    if (ran.status !== 0) throw new Error(`no user xattrs in ${this.base}: ${ran.stderr}`);
  }
}

function patch(hanging: readonly string[], log: string): string {
  return `import os, time
_get, _stat = os.getxattr, os.stat
def _lov(path, name):
    with open(${JSON.stringify(log)}, "a") as log:
        log.write(path + chr(10))
    if any(str(path).endswith("/" + lost) for lost in ${JSON.stringify(hanging.filter((name) => name.startsWith("lost/")))}):
        time.sleep(600)
    return _get(path, "user." + name.replace("lustre.", ""))
os.getxattr = _lov
def _slow(path, *more, **named):
    if any(str(path).endswith("/" + name) for name in ${JSON.stringify(hanging)}):
        time.sleep(600)
    return _stat(path, *more, **named)
os.stat = _slow`;
}

/** The xattr of a file without components. */
export function plainLov(osts: readonly number[], { size = 4 << 20, pattern = 1 } = {}): Uint8Array {
  const bytes = new Uint8Array(32 + 24 * osts.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, 0x0bd10bd0, true);
  view.setUint32(4, pattern, true);
  view.setUint32(24, size, true);
  view.setUint16(28, osts.length, true);
  view.setUint16(30, 0xffff, true);
  for (const [i, ost] of osts.entries()) view.setUint32(32 + 24 * i + 20, ost, true);
  return bytes;
}

/** Removed behind the test. */
export function replay(t: TestContext, scene: Scene): Replay {
  const made = new Replay(scene);
  t.after(() => made.remove());
  return made;
}

/** `lfs` of a file system on which all is well. */
export const WELL: NonNullable<Scene["lfs"]> = {
  "osts /mnt/lustre": { stdout: recorded("lfs-osts.txt") },
  "df /mnt/lustre": { stdout: recorded("lfs-df.txt") },
  getstripe: { stdout: recorded("getstripe-y-root-dir.txt") },
  hsm_state: { each: { "*": ": (0x00000000)" } },
};

/** Shards of 64 MiB in the folder `d`, each on the OSTs of its list. */
export function shards(osts: readonly (readonly number[])[]): Record<string, ReplayFile> {
  return Object.fromEntries(
    osts.map((where, i) => [`d/train-${String(i).padStart(3, "0")}.tar`, { size: 64 << 20, lov: plainLov(where) }]),
  );
}

/** One after the other on 4 OSTs. */
export const ROUND: readonly (readonly number[])[] = Array.from({ length: 16 }, (_, i) => [i % 4]);

/** Shards of `ROUND`, OST 2 lost: `lfs df` stops before it, and files on it never tell their size. */
export function lostOst(): Scene {
  const lfs = {
    ...WELL,
    "df /mnt/lustre": { stdout: recorded("failout-lfs-df.txt"), hang: true },
    "check osts": { stdout: recorded("failout-lfs-check.txt"), stderr: recorded("failout-lfs-check.stderr.txt") },
  };
  const files = shards(ROUND);
  for (const [i, file] of Object.values(files).entries()) file.hangs = ROUND[i]![0] === 2;
  return { files, lfs };
}
