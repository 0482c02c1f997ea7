/**
 * NIDs: how LNet names an interface of a node, `10.0.8.11@o2ib1`, and over which networks a file system is reached. Pure.
 *
 * @example
 * nidsOf("10.0.8.11@o2ib,10.1.8.11@o2ib1:/trainfs").map(netOf).map(typeOf); // ["o2ib", "o2ib"]
 */
import { formatNumber } from "../base/units.ts";

/** `10.0.8.11@o2ib1` → `o2ib1`; the first network of a type has no number. */
export function netOf(nid: string): string {
  return nid.slice(nid.lastIndexOf("@") + 1).replace(/^([a-z]+(?:2ib)?)0$/, "$1");
}

/** `o2ib1` → `o2ib`. */
export const typeOf = (net: string): string => /^(o2ib|[a-z]+)/.exec(net)?.[1] ?? net;

/** `10.0.8.11@o2ib,10.1.8.11@o2ib1:10.0.8.12@o2ib:/trainfs` → the NIDs. */
export function nidsOf(source: string): string[] {
  return source
    .slice(0, source.lastIndexOf(":/"))
    .split(/[,:](?=[^:,]*@)/)
    .filter((nid) => nid.includes("@"));
}

/**
 * Networks over which the OSTs of a file system are reached; a server on this node itself is none. `connections`: its `ost_conn_uuid` below
 * /sys/fs/lustre/osc. Where there are none, networks of the mount, which name only the way to the management server. `from`: which it is, in
 * words.
 */
export function networksOf(
  source: string,
  connections: readonly { path: string; text: string }[],
): { nets: string[]; from: string } {
  const nets = connections
    .filter(({ path, text }) => !path.includes("-osc-MDT") && text.includes("@"))
    .map(({ text }) => netOf(text))
    .filter((net) => net !== "lo");
  if (nets.length > 0) return { nets, from: `${formatNumber(nets.length, "connection")} to OSTs` };
  return { nets: nidsOf(source).map(netOf), from: "by the source of the mount" };
}
