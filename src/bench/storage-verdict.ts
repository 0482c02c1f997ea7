/**
 * What limits each pattern, one line each, and only what the numbers carry: reads must have been cold, and where two rates are compared, the
 * better one's worst pass must beat the other one's best. Pure.
 */
import { formatNumber, formatSize } from "../base/units.ts";
import type { Spread } from "./statistics.ts";
import type { Row, StorageReport, TargetRow } from "./storage-report.ts";
import type { Pattern } from "./storage-plan.ts";

type Seen = Pick<StorageReport, "rows" | "targets" | "widths" | "mount" | "path" | "written">;

/** From this share on a limit counts as reached; a link gives some 94 % of what it says. */
const REACHED = 0.8;
/** Less is noise of a shared machine. */
const GROWS = 1.4;
const SLOW = 2;

const rate = (bytes: number): string => `${formatSize(bytes)}/s`;
const times = (factor: number): string => `${factor.toFixed(1)} x`;
const share = (part: number): string => `${Math.round(100 * part)} %`;
const beats = (a: Spread, b: Spread, factor: number): boolean => a.median >= factor * b.median && a.min > b.max;

export function limitsOf(seen: Seen): StorageReport["limits"] {
  const about = (pattern: Pattern, of: (seen: Seen) => string): StorageReport["limits"] =>
    seen.rows.some((row) => row.pattern === pattern) ? [{ about: pattern, text: of(seen) }] : [];
  return [
    ...slowTargets(seen.targets).map((text) => ({ about: "targets" as const, text })),
    ...about("shards", (all) => throughput(all, "shards", "read")),
    ...about("small-files", smallFiles),
    ...about("checkpoints", checkpoints),
    ...about("shared", shared),
  ];
}

function slowOnes(targets: readonly TargetRow[]): (TargetRow & { read: Spread; slower: number })[] {
  return targets.flatMap((each) => {
    const { read, slower, cold } = each;
    const others = targets.flatMap((other) => (other === each ? [] : (other.read?.min ?? [])));
    if (read === undefined || slower === undefined || slower < SLOW || !cold) return [];
    return others.filter((least) => least > read.max).length >= others.length / 2 ? [{ ...each, read, slower }] : [];
  });
}

function slowTargets(targets: readonly TargetRow[]): string[] {
  return slowOnes(targets).map(
    ({ name, read, slower }) =>
      `${name} gives ${rate(read.median)}, the others ${times(slower)} as much (median), in every pass: show this to the admin`,
  );
}

/** Of the row with the best median; its neighbours tell whether it was the last word. */
function throughput({ rows, targets }: Seen, pattern: Pattern, op: Row["op"]): string {
  const own = rows.filter((row) => row.pattern === pattern && row.op === op);
  if (op === "read" && own.some(({ cold }) => !cold)) return "nothing can be said: the reads were not cold";
  const best = own.reduce((a, b) => (b.rate.median > a.rate.median ? b : a));
  const most = `${rate(best.rate.median)} by ${formatNumber(best.processes, "process")}`;
  const slow = op === "read" && pattern === "shards" ? slowOnes(targets).map(({ name }) => name) : [];
  if (slow.length > 0) return `${most}; files on ${slow.join(", ")} hold the others up`;
  if ((best.ofNetwork ?? 0) >= REACHED) return `the network of this node: ${most}, ${share(best.ofNetwork!)} of it`;
  if (best.cpu >= REACHED) return `the processors of this node: ${most} keep them busy to ${share(best.cpu)}`;
  if (targets.length > 1 && (best.ofTargets ?? 0) >= REACHED)
    return `the targets: ${most}, ${share(best.ofTargets!)} of what the ${targets.length} of them gave one by one`;
  const last = own.at(-1)!;
  const before = own.at(-2);
  if (before !== undefined && beats(last.rate, before.rate, GROWS))
    return `nothing yet: ${most}, ${times(last.rate.median / before.rate.median)} that of ${before.processes}; --processes ${2 * last.processes} tells more`;
  const less =
    best === last
      ? `not clearly more than by ${before?.processes}`
      : `${formatNumber(last.processes, "process")} gave no more`;
  const more = before === undefined ? "" : `, ${less}`;
  return `${most}${more}; neither the network nor the targets nor this node's processors were seen to limit it`;
}

function smallFiles({ rows }: Seen): string {
  const small = rows.filter((row) => row.pattern === "small-files" && row.op === "read").at(-1)!;
  const large = rows.find((row) => row.pattern === "shards" && row.processes === small.processes)!;
  if (!small.cold || !large.cold) return "nothing can be said: the reads were not cold";
  const each = `${small.files!.p50.toFixed(2)} ms to open, read and close one (median)`;
  if (beats(large.rate, small.rate, SLOW))
    return `requests, not bytes: ${each}; in shards the same bytes come ${times(large.rate.median / small.rate.median)} as fast: pack them`;
  return `${each}; they come about as fast as shards`;
}

function checkpoints(seen: Seen): string {
  const { rows, targets, widths, mount, path } = seen;
  const writes = rows.filter((row) => row.pattern === "checkpoints" && row.op === "write");
  const alone = writes[0]!;
  const singly = targets.flatMap(({ write }) => write?.median ?? []).sort((a, b) => a - b);
  const one = singly[singly.length >> 1];
  if (
    mount.kind === "lustre" &&
    widths.checkpoints === 1 &&
    one !== undefined &&
    singly.length > 1 &&
    alone.rate.median >= REACHED * one
  )
    return `one OST a file: a process writes ${rate(alone.rate.median)}, one OST takes ${rate(one)}; \`athanor layout advise ${path} --for checkpoints\``;
  const last = writes.at(-1)!;
  const synced = last.sync > 0.5 ? `; ${share(last.sync)} of the time is fsync` : "";
  return `${throughput(seen, "checkpoints", "write")}${synced}`;
}

function shared({ rows, targets, widths, mount, path }: Seen): string {
  const own = rows.filter((row) => row.pattern === "shared");
  const [alone, last] = [own[0]!, own.at(-1)!];
  if (!alone.cold) return "nothing can be said: the reads were not cold";
  const singly = targets.flatMap(({ read }) => read?.median ?? []).sort((a, b) => a - b);
  const one = singly[singly.length >> 1];
  const shards = rows.filter((row) => row.pattern === "shards").at(-1)!;
  if (
    mount.kind === "lustre" &&
    widths.shared === 1 &&
    one !== undefined &&
    alone.rate.median <= one / REACHED &&
    beats(shards.rate, alone.rate, GROWS)
  )
    return `the one OST it lies on: ${rate(alone.rate.median)}, shards on all give ${rate(shards.rate.median)}; \`athanor layout advise ${path} --for shared\``;
  if (last !== alone && beats(last.rate, alone.rate, GROWS))
    return `${last.processes} readers of this node get ${times(last.rate.median / alone.rate.median)} what one gets: behind the first they are served from this node's memory or by more requests at once; other nodes are not`;
  return `${rate(alone.rate.median)} to one reader; more of them on this node get no more`;
}
