/**
 * Connections to the OSTs as root sees them: `lctl get_param osc.*.import`. A YAML each, of which three keys are wanted; as a user the tool
 * ends with status 2 and prints nothing. Pure.
 */

export interface Connection {
  /** `trainfs-OST0002` */
  name: string;
  /** `FULL`, `IDLE`, `DISCONN`, `CONNECTING`, `EVICTED`, … */
  state: string;
  /** `2.15.5.0`, of the server. */
  version: string | undefined;
}

/** Without those of a server on the same node. */
export function parseImports(text: string): Connection[] {
  const found: Connection[] = [];
  for (const block of text.split(/^osc\./m)) {
    const name = /^([\w-]{1,32}-OST[0-9a-f]{4})-osc-(?!MDT)\S*\.import=/.exec(block)?.[1];
    const state = /^ +state: (\S+)/m.exec(block)?.[1];
    if (name === undefined || state === undefined) continue;
    found.push({ name, state, version: /^ +target_version: (\d+(?:\.\d+)+)/m.exec(block)?.[1] });
  }
  return found;
}

/** The command whose output that is. */
export const IMPORTS = "lctl get_param osc.*.import";

/** The connections of one file system. */
export function importsOf(text: string | undefined, fileSystem: string): Connection[] {
  return parseImports(text ?? "").filter(({ name }) => name.startsWith(`${fileSystem}-OST`));
}
