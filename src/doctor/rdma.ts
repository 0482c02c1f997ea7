/** Network devices that could carry Lustre without the CPU, from /sys. Pure. */
import type { Facts } from "./facts.ts";
import { filesLike, numberIn } from "./facts.ts";

export interface RdmaDevice {
  /** `mlx5_0`, `rdmap36s0`, `cxi0` */
  name: string;
  kind: "InfiniBand" | "RoCE" | "EFA" | "Slingshot" | "Omni-Path";
  /** Ports that are ACTIVE. */
  active: number;
  ports: number;
  /** Gbit/s of the fastest active port. */
  rate: number | undefined;
  /** `ib0`; none where the device has no IP interface. */
  interfaces: string[];
}

/** The LNet network that uses a kind. */
export const NET_OF: Record<RdmaDevice["kind"], string> = {
  InfiniBand: "o2ib",
  RoCE: "o2ib",
  "Omni-Path": "o2ib",
  EFA: "efa",
  Slingshot: "kfi",
};

export function rdmaDevices(facts: Facts): RdmaDevice[] {
  return [...verbs(facts), ...slingshot(facts)];
}

function verbs(facts: Facts): RdmaDevice[] {
  const states = filesLike(facts, "sys/class/infiniband/*/ports/*/state");
  return [...new Set(states.map(({ parts }) => parts[0]!))].sort().map((name) => {
    const folder = `sys/class/infiniband/${name}`;
    const ports = states.filter(({ parts }) => parts[0] === name);
    // `4: ACTIVE`
    const active = ports.filter(({ text }) => text.includes("ACTIVE"));
    const rates = active.flatMap(({ parts }) => numberIn(facts.files.get(`${folder}/ports/${parts[1]}/rate`)) ?? []);
    const layer = facts.files.get(`${folder}/ports/${ports[0]!.parts[1]}/link_layer`);
    return {
      name,
      kind: kindOf(facts.files.get(`${folder}/device/uevent`) ?? "", layer),
      active: active.length,
      ports: ports.length,
      rate: rates.length === 0 ? undefined : Math.max(...rates),
      interfaces: interfacesOf(facts, folder),
    };
  });
}

function kindOf(uevent: string, layer: string | undefined): RdmaDevice["kind"] {
  const driver = /^DRIVER=(.*)$/m.exec(uevent)?.[1];
  if (driver === "efa") return "EFA";
  if (driver === "hfi1") return "Omni-Path";
  return layer === "Ethernet" ? "RoCE" : "InfiniBand";
}

function slingshot(facts: Facts): RdmaDevice[] {
  const names = filesLike(facts, "sys/class/cxi/*/device/uevent").map(({ parts }) => parts[0]!);
  return names.sort().map((name) => {
    const folder = `sys/class/cxi/${name}`;
    const up = filesLike(facts, `${folder}/device/net/*/operstate`).filter(({ text }) => text === "up").length;
    const interfaces = interfacesOf(facts, folder);
    return { name, kind: "Slingshot", active: up, ports: Math.max(1, interfaces.length), rate: undefined, interfaces };
  });
}

function interfacesOf(facts: Facts, folder: string): string[] {
  return filesLike(facts, `${folder}/device/net/*/operstate`)
    .map(({ parts }) => parts.at(-1)!)
    .sort();
}
