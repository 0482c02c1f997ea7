// DeepSeek's tokenizer on one core, ours beside Python's: the same documents in both, CPU time, turn by turn. Needs the build, and a Python with
// `tokenizers`. `npm run bench:tokenizer -- TOKENIZER.json TEXT… [--python PATH] [--rounds N]`; TEXT: files, one document each.
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { median } from "../dist/src/bench/statistics.js";
import { compileTokenizer } from "../dist/src/tokenizer/compile.js";
import { openTokenizer } from "../dist/src/tokenizer/open.js";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { python: { type: "string", default: "python3" }, rounds: { type: "string", default: "5" } },
});
const [file, ...paths] = positionals;
if (file === undefined || paths.length === 0) {
  console.error("usage: npm run bench:tokenizer -- TOKENIZER.json TEXT… [--python PATH] [--rounds N]");
  process.exit(2);
}
const texts = paths.map((path) => readFileSync(path, "utf8"));
const bytes = texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
const compiled = compileTokenizer({ file, json: readFileSync(file), config: undefined });

const PYTHON = `
import json, os, sys, time
os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers
tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1])
tokenizer.encode_special_tokens = True
texts = [open(path, encoding="utf-8").read() for path in sys.argv[2:]]
begin = time.process_time()
ids = sum(len(tokenizer.encode(text, add_special_tokens=False).ids) for text in texts)
print(json.dumps({"seconds": time.process_time() - begin, "ids": ids, "version": tokenizers.__version__}))
`;

/** A tokenizer that has seen no word, and the same again. */
async function ours() {
  const tokenizer = await openTokenizer(compiled, { parseSpecial: false, around: "none" });
  const seconds = [];
  let ids = 0;
  for (let pass = 0; pass < 2; pass++) {
    ids = 0;
    const begin = process.cpuUsage();
    for (const text of texts) ids += tokenizer.encode(text).length;
    const { user, system } = process.cpuUsage(begin);
    seconds.push((user + system) / 1e6);
  }
  return { seconds, ids };
}

const found = { first: [], again: [], python: [] };
let version = "";
await ours(); // V8 compiles.
for (let round = 0; round < Number(values.rounds); round++) {
  const own = await ours();
  const done = spawnSync(values.python, ["-c", PYTHON, file, ...paths], { encoding: "utf8" });
  if (done.status !== 0) throw new Error(done.stderr);
  const theirs = JSON.parse(done.stdout);
  if (theirs.ids !== own.ids) throw new Error(`${own.ids} ids here, ${theirs.ids} in Python`);
  ({ version } = theirs);
  found.first.push(own.seconds[0]);
  found.again.push(own.seconds[1]);
  found.python.push(theirs.seconds);
}
const rate = (list) => `${(bytes / 1e6 / median(list)).toFixed(2)} MB/s`;
const times = (list) => `${(median(found.python) / median(list)).toFixed(2)} ×`;
console.log(
  `${texts.length} documents, ${(bytes / 1e6).toFixed(1)} MB, CPU time of one core, median of ${values.rounds}`,
);
console.log(`tokenizers ${version}  ${rate(found.python)}`);
console.log(`athanor, no word seen before  ${rate(found.first)}  ${times(found.first)}`);
console.log(`athanor, words seen before    ${rate(found.again)}  ${times(found.again)}`);
