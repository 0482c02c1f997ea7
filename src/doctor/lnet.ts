/**
 * LNet: what `lnetctl net show -v` prints (root only), and the networks of NIDs. Pure.
 *
 * A YAML of which five keys are wanted, in two indentations (2.15 and 2.17 differ) and cut off where the tool was: read line by line
 * instead of by a YAML library, which gives nothing of a text that is cut.
 *
 * @example
 * parseNets(printed); // [{ nid: "10.0.8.101@o2ib", net: "o2ib", status: "up", health: 1000, interfaces: ["ib0"] }]
 */

import { netOf, networksOf } from "../lustre/nids.ts";
import { fileSystemOf } from "../lustre/targets.ts";
import type { Facts } from "./facts.ts";
import { filesLike, numberIn } from "./facts.ts";

export interface NetworkInterface {
  nid: string;
  net: string;
  /** `up`, `down` */
  status: string | undefined;
  /** 1000: well; undefined: not told (2.17 without health). */
  health: number | undefined;
  /** Timeouts that its health statistics count. */
  timeouts: number;
  interfaces: string[];
}

/** Without the loopback. */
export function parseNets(text: string): NetworkInterface[] {
  const found: NetworkInterface[] = [];
  let here: NetworkInterface | undefined;
  for (const line of text.split("\n")) {
    const [, key, rest] = /^[\s-]*([A-Za-z0-9()_][A-Za-z0-9 ()_]*):(.*)$/.exec(line.trimEnd()) ?? [];
    if (key === undefined) continue;
    const value = rest!.trimStart();
    if (key === "net type") here = undefined;
    if (key === "nid") {
      here = { nid: value, net: netOf(value), status: undefined, health: undefined, timeouts: 0, interfaces: [] };
      found.push(here);
    }
    if (here === undefined) continue;
    if (key === "status") here.status = value === "" ? undefined : value;
    if (key === "health value") here.health = numberIn(value);
    if (key === "timeouts") here.timeouts = numberIn(value) ?? 0;
    if (/^\d+$/.test(key)) here.interfaces.push(value);
  }
  return found.filter(({ net }) => net !== "lo");
}

/** Networks over which the OSTs of a mount are reached, as `networksOf` tells. */
export function networksTo(source: string, facts: Facts): ReturnType<typeof networksOf> {
  return networksOf(source, filesLike(facts, `sys/fs/lustre/osc/${fileSystemOf(source)}-OST*/ost_conn_uuid`));
}
