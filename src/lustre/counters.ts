/**
 * Counters: what a Lustre client counts of its servers and mounts, from the text of `lctl get_param llite.*.stats osc.*.stats
 * osc.*.rpc_stats mdc.*.stats`. Pure.
 *
 * Contract: a counter that is not printed is 0: Lustre leaves those out. Lines are taken as far as they go: told to a user they come without
 * their last letter, which is of a sum of squares or a bracket. Devices of a server on this node (`-osc-MDT0000`) are no client's, and left
 * out. Numbers beyond 2^53 (9 PB of one target) are rounded.
 *
 * @example
 * const [device] = parseCounters(stdout);
 * device.target;                             // "trainfs-OST0002"
 * device.counters.get("ost_read")?.count;    // requests since the mount, or since somebody cleared them
 */

export type DeviceKind = "llite" | "osc" | "mdc";

export interface Counter {
  count: number;
  /** `bytes`, `usecs`, `reqs` */
  unit: string;
  /** Undefined for those that only count. */
  sum: number | undefined;
}

export interface Device {
  kind: DeviceKind;
  /** As the client calls it: `trainfs-OST0002-osc-ff4e8a7c0b1d2000`. */
  name: string;
  /** Whom it asks: `trainfs-OST0002`; the file system of an `llite`. */
  target: string;
  /** Its `stats` were told. */
  counted: boolean;
  counters: Map<string, Counter>;
  /** Seconds since 1970, of the machine's clock. Since when its stats count; not told by older clients. */
  since: number | undefined;
  /** Read requests by their pages of 4 KiB (of `rpc_stats`, which only root may read): as many as the key, at least. */
  readPages: Map<number, number> | undefined;
}

/** In order of their first line. */
export function parseCounters(text: string): Device[] {
  const devices = new Map<string, Device>();
  let device: Device | undefined;
  let histogram = false;
  let pages = false;
  for (const line of text.split("\n")) {
    const head = /^(llite|osc|mdc)\.([^.\s]{1,100})\.(\w+)=/.exec(line);
    if (head !== null) {
      const [, kind, name, parameter] = head as unknown as [string, DeviceKind, string, string];
      const target = parameter === "stats" || parameter === "rpc_stats" ? targetOf(kind, name) : undefined;
      device = target === undefined ? undefined : of(devices, kind, name, target);
      histogram = parameter === "rpc_stats";
      pages = false;
      if (device !== undefined && !histogram) device.counted = true;
      if (device !== undefined && histogram) device.readPages ??= new Map();
    } else if (device !== undefined && histogram) {
      if (/^[a-z]/i.test(line)) pages = line.startsWith("pages per rpc");
      const row = pages ? /^(\d{1,9}):\s+(\d{1,20})\s/.exec(line) : null;
      if (row !== null && Number(row[2]) > 0) device.readPages?.set(Number(row[1]), Number(row[2]));
    } else if (device !== undefined) {
      const row = /^(\w+) +(\d{1,20}) samples \[(\w+)\]?(?: +\d+ +\d+ +(\d{1,20}))?/.exec(line);
      if (row !== null) {
        const [, name, count, unit, sum] = row;
        device.counters.set(name!, {
          count: Number(count),
          unit: unit!,
          sum: sum === undefined ? undefined : Number(sum),
        });
      } else {
        const since = /^start_time:? +(\d+\.\d+)/.exec(line)?.[1];
        if (since !== undefined) device.since = Number(since);
      }
    }
  }
  return [...devices.values()];
}

/** Undefined: not a client's device. */
export function targetOf(kind: DeviceKind, name: string): string | undefined {
  switch (kind) {
    case "osc":
      return /^(.+-OST[0-9a-f]{4})-osc-(?!MDT)/.exec(name)?.[1];
    case "mdc":
      return /^(.+-MDT[0-9a-f]{4})-mdc-/.exec(name)?.[1];
    case "llite":
      return /^(.+)-[0-9a-f]+$/.exec(name)?.[1];
  }
}

/** Reads that a target has answered, as far as its device tells. */
export interface Reads {
  requests: number;
  /** Over the wire, as file content; headers of messages are not in it. */
  bytes: number;
  /** Sum over the requests, milliseconds. */
  ms: number;
}

/** Since the device's counters began. Of a metadata server: files that lie on it (Data-on-MDT). */
export function readsOf({ counters }: Pick<Device, "counters">): Reads {
  const [read, bytes] = [counters.get("ost_read"), counters.get("read_bytes")];
  return { requests: (read ?? bytes)?.count ?? 0, bytes: bytes?.sum ?? 0, ms: (read?.sum ?? 0) / 1000 };
}

/**
 * Operations of a metadata server that somebody's files have asked for, by name: lookups and opens (`ldlm_ibits_enqueue`), closes, attributes,
 * listings. What a client does by itself is no part: pings, the state of the file system, connections, locks that are given back.
 */
export function operationsOf({ counters }: Pick<Device, "counters">): Map<string, number> {
  const asked = [...counters].filter(
    ([name]) => name === "ldlm_ibits_enqueue" || (name.startsWith("mds_") && !OWN.has(name)),
  );
  return new Map(asked.map(([name, { count }]) => [name, count]));
}

const OWN = new Set(["mds_statfs", "mds_connect", "mds_disconnect", "mds_get_root", "mds_get_info", "mds_set_info"]);

function of(devices: Map<string, Device>, kind: DeviceKind, name: string, target: string): Device {
  const key = `${kind}.${name}`;
  let device = devices.get(key);
  if (device === undefined) {
    const fresh = { counters: new Map<string, Counter>(), since: undefined, readPages: undefined };
    device = { kind, name, target, counted: false, ...fresh };
    devices.set(key, device);
  }
  return device;
}
