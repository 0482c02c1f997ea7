/**
 * Slow links: whether each OST is reached over a link that is slow by itself. On EC2 (FSx for Lustre) one flow over TCP gives 5 Gbit/s; over
 * EFA it does not. The source of the mount does not tell: `mount.lustre` turns names of servers into addresses. Reads /sys only.
 */
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { networksOf, typeOf } from "./nids.ts";
import { fileSystemOf, readText } from "./targets.ts";

/** Of a machine of EC2 (Nitro), with its value there. */
export const VENDOR_FILE = "sys/class/dmi/id/sys_vendor";
export const EC2 = "Amazon EC2";

/** `root`: where /sys is looked for. */
export function hasSlowLinks({ source }: { source: string }, root: string): boolean {
  if (readText(join(root, VENDOR_FILE))?.trim() !== EC2) return false;
  return networksOf(source, connections(source, root)).nets.every((net) => typeOf(net) === "tcp");
}

function connections(source: string, root: string): { path: string; text: string }[] {
  const folder = join(root, "sys/fs/lustre/osc");
  try {
    return readdirSync(folder)
      .filter((name) => name.startsWith(`${fileSystemOf(source)}-OST`))
      .map((name) => join(folder, name, "ost_conn_uuid"))
      .map((path) => ({ path, text: readText(path)?.trim() ?? "" }));
  } catch {
    return []; // no client of Lustre is loaded
  }
}
