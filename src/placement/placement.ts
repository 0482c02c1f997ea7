/**
 * Placement: where the files in use lie, on whatever file system they are, for those who read them.
 *
 * Contract: as storage/places.ts. A node without a mount that can tell of its files is looked at once a data set, in /proc, and asked nothing.
 *
 * @example
 * const placement = new Placement({ tell: console.warn });
 * const home = placement.home("/mnt/mfs/d"); // undefined: no mount of this node tells
 * home?.expect(["/mnt/mfs/d/a.tar"]);
 * placement.targetsOf("/mnt/mfs/d/a.tar", 0, 8 << 20); // later: ["mfs-10.77.0.11:9422"]
 */
import { LustrePlaces } from "../lustre/placement.ts";
import type { LustreOptions } from "../lustre/placement.ts";
import { mountHolding } from "../lustre/survey.ts";
import { hostRoot, readMounts } from "../storage/mounts.ts";
import type { MountKind } from "../storage/mounts.ts";
import type { Home, Places } from "../storage/places.ts";
import { CephPlaces } from "./ceph.ts";
import { MooseFsPlaces } from "./moosefs.ts";

export type PlacementOptions = LustreOptions;

export class Placement {
  private readonly root: string;
  private readonly timeoutMs: number | undefined;
  private readonly lustre: LustrePlaces;
  private readonly kinds: ReadonlyMap<MountKind, Places>;
  /** Was a Lustre mounted when data was opened last? */
  private hasLustre = false;
  private closed = false;

  constructor(options: PlacementOptions = {}) {
    this.root = options.root ?? hostRoot();
    this.timeoutMs = options.timeoutMs;
    this.lustre = new LustrePlaces(options);
    this.kinds = new Map<MountKind, Places>([
      ["lustre", this.lustre],
      ["moosefs", new MooseFsPlaces(options)],
      ["cephfs", new CephPlaces(options)],
    ]);
  }

  /** Of the data set at `path`; undefined: no file system that tells is mounted on this node. */
  home(path: string): Home | undefined {
    const mounted = this.mounted();
    this.hasLustre = mounted.has("lustre");
    if (![...this.kinds.keys()].some((kind) => mounted.has(kind))) return undefined;
    const early: string[] = [];
    const { restores } = this.lustre;
    let found: ReturnType<Places["at"]> | undefined;
    let over = false;
    void mountHolding(path, this.root, this.timeoutMs).then((mount) => {
      over = true;
      if (mount === undefined || this.closed) return;
      found = this.kinds.get(mount.kind)?.at(mount);
      found?.expect(early);
    });
    return {
      get requestBytes() {
        return found?.requestBytes;
      },
      expect: (paths) => {
        if (found !== undefined) found.expect(paths);
        else if (!over) early.push(...paths);
      },
      targetsOf: (file, offset, length) => this.targetsOf(file, offset, length),
      get restoring() {
        return restores.any;
      },
      arrival: (file) => restores.arrival(file),
      noteOf: (file) => restores.noteOf(file),
    };
  }

  targetsOf(path: string, offset: number, length: number): readonly string[] | undefined {
    for (const places of this.kinds.values()) {
      const targets = places.targetsOf(path, offset, length);
      if (targets !== undefined) return targets;
    }
    return undefined;
  }

  /**
   * For a file that takes up no space, whose layout is perhaps not known yet: resolves when it is known not to be released, or is back.
   * Undefined: no Lustre is mounted here.
   */
  whenThere(path: string): Promise<void> | undefined {
    return this.hasLustre ? this.lustre.whenThere(path) : undefined;
  }

  /** What is known of a target without asking it. */
  stateOf(target: string): string | undefined {
    for (const places of this.kinds.values()) {
      const state = places.stateOf?.(target);
      if (state !== undefined) return state;
    }
    return undefined;
  }

  close(): void {
    this.closed = true;
    for (const places of this.kinds.values()) places.close();
  }

  private mounted(): ReadonlySet<MountKind> {
    try {
      return new Set(readMounts(this.root).map(({ kind }) => kind));
    } catch {
      return new Set(); // no /proc: nothing tells
    }
  }
}
