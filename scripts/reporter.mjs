// Reporter for `node --test`: failures in full, skips with their reasons, one line a file; counts go as JSON to the file in
// ATHANOR_TEST_COUNTS. What passing tests print is left out.
import { writeFileSync } from "node:fs";
import { relative } from "node:path";
import { inspect } from "node:util";

export default async function* report(source) {
  const files = new Map();
  const of = (file) => {
    const name = relative(process.cwd(), file ?? "?");
    if (!files.has(name)) files.set(name, { passed: 0, failed: 0, skipped: [], ms: 0, output: "" });
    return files.get(name);
  };
  for await (const { type, data } of source) {
    if (type === "test:stdout" || type === "test:stderr") of(data.file).output += data.message;
    if (type !== "test:pass" && type !== "test:fail") continue;
    const file = of(data.file ?? data.name);
    const suite = data.details?.type === "suite";
    if (data.nesting === 0) file.ms += data.details?.duration_ms ?? 0;
    if (data.skip !== undefined || data.todo !== undefined) {
      file.skipped.push(`${data.name}: ${reason(data.skip ?? data.todo)}`);
      yield `skip  ${relative(process.cwd(), data.file ?? "")}: ${data.name}: ${reason(data.skip ?? data.todo)}\n`;
    } else if (type === "test:fail") {
      const error = data.details?.error;
      // A suite or a file that failed only through its tests has been counted with them.
      if (error?.failureType === "subtestsFailed") continue;
      file.failed++;
      yield `FAIL  ${relative(process.cwd(), data.file ?? "")}: ${data.name}\n${text(error)}\n`;
    } else if (!suite) file.passed++;
  }
  const totals = { passed: 0, failed: 0, skipped: [] };
  for (const [name, file] of [...files].sort(([a], [b]) => (a < b ? -1 : 1))) {
    totals.passed += file.passed;
    totals.failed += file.failed;
    totals.skipped.push(...file.skipped);
    const counts = `${file.passed} ok${file.failed > 0 ? `, ${file.failed} FAILED` : ""}`;
    yield `${name}: ${counts}${file.skipped.length > 0 ? `, ${file.skipped.length} skipped` : ""} (${(file.ms / 1000).toFixed(1)} s)\n`;
    if (file.failed > 0 && file.output !== "") yield `--- output of ${name}\n${file.output.slice(-8000)}\n---\n`;
  }
  if (process.env.ATHANOR_TEST_COUNTS) writeFileSync(process.env.ATHANOR_TEST_COUNTS, JSON.stringify(totals));
}

function reason(value) {
  return typeof value === "string" ? value : "no reason given";
}

function text(error) {
  const cause = error?.cause ?? error;
  if (error?.exitCode !== undefined) return `      the file ended with exit ${error.exitCode ?? error.signal}`;
  return (cause instanceof Error ? (cause.stack ?? cause.message) : inspect(cause)).replace(/^/gm, "      ");
}
