/**
 * Troubles: which known targets answer with faults, since when, and what is known of why. A target is in trouble from the first fault
 * that its bytes met until the next read of it that came well.
 *
 * @example
 * troubles.fault(["lustre-OST0001"], "EIO");
 * troubles.textOf(["lustre-OST0001"]); // "lustre-OST0001 since 23:01:12, switched off on this client"
 */

export interface Trouble {
  target: string;
  /** Name of the errno. */
  code: string;
  /** ISO 8601. */
  since: string;
  faults: number;
  /** What is known of it. */
  state?: string;
}

/** Names that a message holds. */
const SHOWN = 4;

export class Troubles {
  private readonly open = new Map<string, { code: string; since: Date; faults: number }>();
  private readonly stateOf: ((target: string) => string | undefined) | undefined;

  /** `stateOf`: what is known of a target, without asking it. */
  constructor(stateOf: ((target: string) => string | undefined) | undefined) {
    this.stateOf = stateOf;
  }

  fault(targets: readonly string[], code: string): void {
    for (const target of targets) {
      const known = this.open.get(target);
      if (known === undefined) this.open.set(target, { code, since: new Date(), faults: 1 });
      else Object.assign(known, { code, faults: known.faults + 1 });
    }
  }

  /** A read of them came well. */
  fine(targets: readonly string[]): void {
    if (this.open.size > 0) for (const target of targets) this.open.delete(target);
  }

  /** In words; one of them is meant where there are several. */
  textOf(targets: readonly string[]): string {
    const told = targets.slice(0, SHOWN).map((target) => {
      const since = this.open.get(target)?.since;
      const state = this.stateOf?.(target);
      return `${target}${since === undefined ? "" : ` since ${clock(since)}`}${state === undefined ? "" : `, ${state}`}`;
    });
    const more = targets.length > SHOWN ? ", …" : "";
    return targets.length === 1 ? told[0]! : `one of ${told.join("; ")}${more}`;
  }

  list(): Trouble[] {
    return [...this.open].map(([target, { code, since, faults }]) => {
      const state = this.stateOf?.(target);
      return { target, code, since: since.toISOString(), faults, ...(state === undefined ? {} : { state }) };
    });
  }
}

/** As the kernel's log and the admin's have it: local time. */
export function clock(date: Date): string {
  return date.toTimeString().slice(0, 8);
}
