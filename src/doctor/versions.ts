/** Check: versions of Node, Python, numpy, torch and of both halves of Athanor. */
import type { Facts } from "./facts.ts";
import { adderOf, checked } from "./finding.ts";
import type { Checked } from "./finding.ts";

/** package.json, engines. */
const NODE = [20, 19] as const;
const PYTHON = [3, 9] as const;

export function checkVersions(facts: Facts): Checked {
  const found = checked("versions");
  const add = adderOf(found);
  const { python, node, athanor } = facts;
  found.seen.push(`Athanor ${athanor}, Node ${node}`);
  if (isBefore(node, NODE))
    add("node-old", `Node ${node} is too old`, "process.versions.node", `Node ${NODE.join(".")} or later`);
  const { command } = python;
  const from = facts.env["ATHANOR_PYTHON"]
    ? `ATHANOR_PYTHON=${command}`
    : `${command} on PATH, ATHANOR_PYTHON is not set`;
  if ("trouble" in python) {
    const evidence = `${from}: ${python.trouble}`;
    const fix = "name the Python of the training with ATHANOR_PYTHON; without one, layouts are asked file by file";
    const slow = "is it on a file system in trouble? A home or an environment on Lustre starts as slowly as Lustre";
    if (python.silent) add("python-silent", "Python does not answer in time", evidence, `${slow}; else ${fix}`);
    else add("python-missing", "no Python runs here", evidence, fix);
    return found;
  }
  const { version, packages, client } = python;
  const named = ["numpy", "torch", "deepspeed", "athanor"].map(
    (name) => `${name} ${packages[name] ?? "not installed"}`,
  );
  found.seen.push(`Python ${version} (${command}): ${named.join(", ")}`);
  const evidence = `${command} tells ${version}`;
  if (isBefore(version, PYTHON))
    add(
      "python-old",
      `Python ${version} is too old`,
      evidence,
      `Python ${PYTHON.join(".")} or later; ATHANOR_PYTHON names it`,
    );
  if (packages["numpy"] === undefined) {
    const fix = "if training runs in another Python, name it with ATHANOR_PYTHON; else install numpy";
    add("numpy-missing", "the client needs numpy, and this Python has none", evidence, fix);
  }
  const other = packages["athanor"];
  // Without numpy it is some other Python, and one word about that is enough.
  if (packages["numpy"] !== undefined && other === undefined) {
    const fix =
      "if training runs in another Python, name it with ATHANOR_PYTHON; else install the client, or name it with PYTHONPATH";
    add("client-missing", "`import athanor` would fail in this Python", evidence, fix);
  }
  if (other !== undefined && other !== athanor) {
    const what = `the Python client is ${other}, the command ${athanor}`;
    add(
      "versions-differ",
      what,
      `__version__ in ${client ?? "the package"}`,
      "install both from one release: clients and agents of other protocols refuse each other",
    );
  }
  return found;
}

function isBefore(version: string, [major, minor]: readonly [number, number]): boolean {
  const [a = 0, b = 0] = version.split(".").map(Number);
  return a < major || (a === major && b < minor);
}
