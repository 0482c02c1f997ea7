/**
 * `npm test`: set-up, then every check of the repository, with minutes for each, and one closing line
 * `N passed, N failed, N skipped` over both languages. Exit 1 on any failure.
 *
 * `npm test -- --only lint|ts|py|e2e|fault` runs a part. Lines of the suites carry a `│ ` in front, so that nothing a test
 * prints can look like the closing line. A suite that crashes or passes its deadline counts as a failure; with CI=true so
 * does a test skipped for a missing tool (reason begins with "skipped: ").
 */
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ensureSetup, main, root } from "./setup.mjs";

const PARTS = ["lint", "ts", "py", "e2e", "fault"];
const bin = (name) => join(root, "node_modules", ".bin", name);
const running = new Set();

await main(async () => {
  const argument = process.argv.slice(2);
  const only = argument[0] === "--only" ? argument[1] : undefined;
  if (argument.length > 0 && (argument.length !== 2 || !PARTS.includes(only))) {
    process.stderr.write(`usage: npm test [-- --only ${PARTS.join("|")}]\n`);
    return 2;
  }
  process.once("exit", () => running.forEach((child) => kill(child, "SIGKILL")));
  const began = Date.now();
  const { python, env } = await ensureSetup({ build: false });
  console.log(`set-up: ${minutes(began)}`);

  const scratch = mkdtempSync(join(tmpdir(), "athanor-test-"));
  process.once("exit", () => rmSync(scratch, { recursive: true, force: true }));
  const total = { passed: 0, failed: 0, skipped: 0 };
  for (const suite of suites(python, scratch).filter(({ part }) => only === undefined || part.includes(only))) {
    const start = Date.now();
    const result = await runSuite(suite, env);
    total.passed += result.passed;
    total.failed += result.failed;
    total.skipped += result.skipped;
    const verdict = result.failed > 0 ? "FAILED" : "ok";
    console.log(
      `${suite.name}: ${verdict}, ${result.passed} of ${result.passed + result.failed} in ${minutes(start)}${result.note}`,
    );
  }
  console.log(`all suites: ${minutes(began)}`);
  console.log(`${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped`);
  return total.failed > 0 ? 1 : 0;
});

/** In order. A suite without `counts` is one check. `limit` in minutes. */
function suites(python, scratch) {
  const pySources = ["python", "test/e2e", "test/fault", "test/large", "examples", "bench"].filter((path) =>
    hasFile(path, ".py"),
  );
  const pytest = (name, part, paths, limit) => {
    const xml = join(scratch, `${name.replaceAll(" ", "-")}.xml`);
    const args = [
      "-m",
      "pytest",
      ...paths,
      "-q",
      "-ra",
      "-c",
      "python/pyproject.toml",
      "--rootdir",
      "python",
      `--junitxml=${xml}`,
    ];
    return { name, part, command: python, args, limit, counts: () => junit(xml) };
  };
  const json = join(scratch, "node.json");
  const nodeArgs = [
    "--enable-source-maps",
    "--test",
    "--test-concurrency=2",
    "--test-timeout=600000",
    "--test-reporter=./scripts/reporter.mjs",
  ];
  const tsTests = () => files("dist/test", ".test.js");
  return [
    { name: "types and build", part: PARTS, command: process.execPath, args: ["scripts/build.mjs"], limit: 5 },
    { name: "lint", part: ["lint"], command: bin("oxlint"), args: ["--type-aware", "--deny-warnings"], limit: 5 },
    { name: "format", part: ["lint"], command: bin("oxfmt"), args: ["--check"], limit: 5 },
    { name: "dead exports", part: ["lint"], command: bin("knip"), args: ["--no-progress"], limit: 5 },
    {
      name: "python lint",
      part: ["lint"],
      command: python,
      args: ["-m", "ruff", "check", "--output-format", "concise", ...pySources],
      limit: 5,
    },
    {
      name: "python format",
      part: ["lint"],
      command: python,
      args: ["-m", "ruff", "format", "--check", "-q", ...pySources],
      limit: 5,
    },
    {
      name: "python types",
      part: ["lint"],
      command: python,
      args: ["-m", "mypy", "--config-file", "python/pyproject.toml", "python/src"],
      limit: 5,
    },
    {
      name: "typescript tests",
      part: ["ts"],
      command: process.execPath,
      args: () => [...nodeArgs, ...tsTests()],
      limit: 20,
      env: { ATHANOR_TEST_COUNTS: json },
      counts: () => JSON.parse(readFileSync(json, "utf8")),
    },
    pytest("python tests", ["py"], ["python/tests"], 20),
    pytest("end to end", ["e2e"], ["test/e2e"], 40),
    pytest("faults", ["fault"], ["test/fault"], 20),
  ];
}

async function runSuite(suite, env) {
  console.log(`${suite.name} …`);
  const args = typeof suite.args === "function" ? suite.args() : suite.args;
  const { status, late } = await stream(suite.command, args, { ...env, NO_COLOR: "1", ...suite.env }, suite.limit);
  const note = late ? `, stopped at its deadline of ${suite.limit} min` : "";
  if (suite.counts === undefined)
    return { passed: status === 0 ? 1 : 0, failed: status === 0 ? 0 : 1, skipped: 0, note };
  let counts;
  try {
    counts = suite.counts();
  } catch (error) {
    return { passed: 0, failed: 1, skipped: 0, note: `${note}, no result (exit ${status}): ${error.message}` };
  }
  let { passed, failed } = counts;
  const missing = process.env.CI === "true" ? counts.skipped.filter((text) => text.includes("skipped: ")) : [];
  failed += missing.length;
  // A runner that fails without a failed test has crashed; one without any test checks nothing.
  if (failed === 0 && (status !== 0 || passed === 0)) failed = 1;
  const crash = status !== 0 && counts.failed === 0 ? `, exit ${status}` : "";
  const tools = missing.length > 0 ? `, in CI a missing tool is a failure: ${missing.join("; ")}` : "";
  return { passed, failed, skipped: counts.skipped.length - missing.length, note: `${note}${crash}${tools}` };
}

/** Runs a command in a process group of its own, its lines marked; ends the whole group at the deadline. */
function stream(command, args, env, limit) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { cwd: root, env, detached: true, stdio: ["ignore", "pipe", "pipe"] });
    running.add(child);
    let late = false;
    const deadline = setTimeout(() => {
      late = true;
      kill(child, "SIGTERM");
      setTimeout(() => kill(child, "SIGKILL"), 5000).unref();
    }, limit * 60_000);
    for (const pipe of [child.stdout, child.stderr]) {
      let rest = "";
      pipe.setEncoding("utf8");
      pipe.on("data", (chunk) => {
        const lines = (rest + chunk).split(/[\r\n]+/);
        rest = lines.pop();
        for (const line of lines) console.log(`│ ${line}`);
      });
      pipe.on("end", () => rest !== "" && console.log(`│ ${rest}`));
    }
    const done = (status) => {
      clearTimeout(deadline);
      running.delete(child);
      resolve({ status, late });
    };
    child.on("error", (error) => {
      console.log(`│ ${error.message}`);
      done(127);
    });
    // `exit` and not `close`: a process that a test left behind keeps the pipes open. Half a second for last lines.
    child.on("exit", (code, signal) => {
      setTimeout(() => {
        kill(child, "SIGKILL");
        done(late ? "deadline" : (code ?? signal));
      }, 500);
    });
  });
}

function kill(child, signal) {
  try {
    process.kill(-child.pid, signal);
  } catch {
    // the group is gone
  }
}

/** Counts from pytest's XML; an error in a fixture is a failure. */
function junit(path) {
  const xml = readFileSync(path, "utf8");
  const head = /<testsuite [^>]*>/.exec(xml)[0];
  const number = (name) => Number(new RegExp(`\\b${name}="(\\d+)"`).exec(head)[1]);
  const skipped = [...xml.matchAll(/<skipped [^>]*?message="([^"]*)"/g)].map(([, message]) => message);
  const failed = number("failures") + number("errors");
  return { passed: number("tests") - failed - number("skipped"), failed, skipped };
}

function files(folder, ending) {
  const path = join(root, folder);
  if (!existsSync(path)) return [];
  return readdirSync(path, { recursive: true })
    .filter((name) => name.endsWith(ending))
    .map((name) => join(folder, name))
    .sort();
}

function hasFile(folder, ending) {
  return files(folder, ending).length > 0;
}

function minutes(since) {
  return `${((Date.now() - since) / 60_000).toFixed(1)} min`;
}
