/**
 * Slow links: whether each OST is reached over a link that is slow by itself. On EC2 (FSx for Lustre) one flow over TCP gives 5 Gbit/s; over
 * EFA it does not. The source of the mount does not tell: `mount.lustre` turns names of servers into addresses. Reads /sys only.
 */
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { fileSystemOf } from "./targets.ts";

/** Of a machine of EC2 (Nitro), with its value there. */
export const VENDOR_FILE = "sys/class/dmi/id/sys_vendor";
export const EC2 = "Amazon EC2";

/** `root`: where /sys is looked for. */
export function hasSlowLinks({ source }: { source: string }, root: string): boolean {
  if (read(join(root, VENDOR_FILE)) !== EC2) return false;
  const networks = connections(source, root).map((nid) => nid.slice(nid.lastIndexOf("@") + 1));
  return networks.every((name) => name.startsWith("tcp"));
}

/** NIDs of the OSTs, where /sys has them; else those of the mount. */
function connections(source: string, root: string): string[] {
  const folder = join(root, "sys/fs/lustre/osc");
  let names: string[] = [];
  try {
    names = readdirSync(folder).filter((name) => name.startsWith(`${fileSystemOf(source)}-OST`));
  } catch {
    // no client of Lustre is loaded
  }
  const nids = names.map((name) => read(join(folder, name, "ost_conn_uuid"))).filter((nid) => nid.includes("@"));
  return nids.length > 0 ? nids : source.slice(0, source.lastIndexOf(":/")).split(/[,:](?=[^:,]*@)/);
}

function read(path: string): string {
  try {
    return readFileSync(path, "utf8").trim();
  } catch {
    return "";
  }
}
