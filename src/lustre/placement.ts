/**
 * Placement: on which targets the files in use lie, for those who read them.
 *
 * Contract: no call here waits for the mount, or makes one on the calling thread. Layouts are asked for in the background, once a file,
 * {@link BATCH} at a time, by a process that may be left behind (`ask.ts`); until one is there, and on file systems that are no Lustre,
 * nothing is known and reading goes on as without. What is known is of the moment it was asked: it says how to read, never what.
 *
 * @example
 * const placement = new Placement({ tell: console.warn });
 * const home = placement.home("/mnt/lustre/d");   // undefined: this node has no Lustre
 * home?.expect(["/mnt/lustre/d/a.tar"]);
 * placement.targetsOf("/mnt/lustre/d/a.tar", 0, 8 << 20);   // later: ["lustre-OST0003"]
 */
import { findMount, hostRoot, readMounts } from "../storage/mounts.ts";
import { askFiles } from "./ask.ts";
import type { Answer, AskOptions } from "./ask.ts";
import { isReleased, readComponents, spreadOf } from "./layout.ts";
import type { Layout } from "./layout.ts";
import { decodeLov } from "./lov.ts";
import { requestBytes } from "./request-size.ts";
import { Restores } from "./restores.ts";
import type { RestoreOptions, Told } from "./restores.ts";
import { realPath } from "./survey.ts";
import { fileSystemOf, stateInSys } from "./targets.ts";

export interface PlacementOptions extends AskOptions, Pick<RestoreOptions, "atOnce" | "pollMs"> {
  /** Where /proc and /sys are looked for. @default $ATHANOR_HOST_ROOT, else `/` */
  root?: string;
  /** Something that people should know of. */
  tell?: (text: string) => void;
  /** Data of this Lustre file system is used from now on. */
  onSystem?: (system: string) => void;
}

/** The files of one data set, perhaps on a Lustre: known when its path has been looked at. */
export interface Home {
  /** Bytes that one read should bring at least; undefined: not a Lustre, or not known yet. */
  readonly requestBytes: number | undefined;
  /** These files will be read soon, the first one first. */
  expect(paths: readonly string[]): void;
  targetsOf(path: string, offset: number, length: number): readonly string[] | undefined;
  /** Is any file of this node waited for? */
  readonly restoring: boolean;
  /** Resolves when a released file is back, or cannot be brought back ahead; undefined: nothing to wait for. */
  arrival(path: string): Promise<void> | undefined;
  /** Why reading a file waits, in words. */
  noteOf(path: string): string | undefined;
}

/** Files that one process asks for. */
export const BATCH = 512;
/** A process for fewer would cost more than its questions. */
const LEAST_BATCH = 16;
/** Files that are named within this time are asked for together. Milliseconds. */
const GATHER_MS = 20;
/** A metadata server that does not answer is left alone for so long. Milliseconds. */
const QUIET_MS = 60_000;
/** Files that are remembered; those asked for first are forgotten first. */
const MOST = 50_000;

interface Place {
  system: string;
  layout: Layout;
  /** Where all its bytes lie on one target, that one. */
  one: readonly string[] | undefined;
}

export class Placement {
  private readonly options: PlacementOptions;
  private readonly root: string;
  /** By path; undefined: asked for, or not told. */
  private readonly places = new Map<string, Place | undefined>();
  private readonly wanted: { path: string; system: string }[] = [];
  private readonly restores: Restores;
  /** Was a Lustre mounted when data was opened last? */
  private lustre = false;
  /** Files that take up no space for other reasons. */
  private readonly holes = new Set<string>();
  /** Those that are being asked for. */
  private readonly learning = new Map<string, Promise<unknown>>();
  private timer: NodeJS.Timeout | undefined;
  private asking = false;
  private quietUntil = 0;
  private closed = false;

  constructor(options: PlacementOptions = {}) {
    this.options = options;
    this.root = options.root ?? hostRoot();
    this.restores = new Restores({ ...options, look: (paths) => this.look(paths) });
  }

  /** Of the data set at `path`; undefined: no Lustre is mounted on this node. */
  home(path: string): Home | undefined {
    this.lustre = this.hasLustre();
    if (!this.lustre) return undefined;
    const early: string[] = [];
    const { restores } = this;
    let system: string | undefined;
    let over = false;
    const home = {
      requestBytes: undefined as number | undefined,
      expect: (paths: readonly string[]) => {
        if (system !== undefined) this.expect(paths, system);
        else if (!over) early.push(...paths);
      },
      targetsOf: (file: string, offset: number, length: number) => this.targetsOf(file, offset, length),
      get restoring() {
        return restores.any;
      },
      arrival: (file: string) => restores.arrival(file),
      noteOf: (file: string) => restores.noteOf(file),
    };
    void this.lustreOf(path).then((source) => {
      over = true;
      if (source === undefined || this.closed) return;
      system = fileSystemOf(source);
      this.options.onSystem?.(system);
      home.requestBytes = requestBytes(system, this.root);
      this.expect(early, system);
    });
    return home;
  }

  targetsOf(path: string, offset: number, length: number): readonly string[] | undefined {
    const place = this.places.get(path);
    if (place === undefined) return undefined;
    if (place.one !== undefined) return place.one;
    const names = targetsOfRange(place, BigInt(offset), BigInt(length));
    return names.length === 0 ? undefined : names;
  }

  /**
   * For a file that takes up no space, whose layout is perhaps not known yet: resolves when it is known not to be released, or is back.
   * Undefined: no Lustre is mounted here.
   */
  whenThere(path: string): Promise<void> | undefined {
    return this.lustre ? this.backOrHole(path) : undefined;
  }

  private async backOrHole(path: string): Promise<void> {
    if (this.places.get(path) === undefined && !this.holes.has(path)) {
      let judged = this.learning.get(path);
      if (judged === undefined) {
        judged = this.judge(path);
        this.learning.set(path, judged);
      }
      await judged;
    }
    await this.restores.arrival(path);
  }

  /** Asks for the layout of one file now. */
  private async judge(path: string): Promise<void> {
    let system = this.unqueue(path);
    if (system === undefined) {
      const source = await this.lustreOf(path);
      // Expected meanwhile: asked for here, and not once more with the others.
      system = this.unqueue(path) ?? (source && fileSystemOf(source));
    }
    if (system !== undefined) {
      // Not again with those that are expected.
      if (!this.places.has(path)) this.places.set(path, undefined);
      await this.learn([{ path, system }]);
    }
    this.learning.delete(path);
    if (this.places.get(path) === undefined) this.holes.add(path);
  }

  /** Takes a file out of those that are to be asked for; its file system. */
  private unqueue(path: string): string | undefined {
    const at = this.wanted.findIndex((wanted) => wanted.path === path);
    return at < 0 ? undefined : this.wanted.splice(at, 1)[0]!.system;
  }

  /** What is known of a target without asking it. */
  stateOf(target: string): string | undefined {
    return stateInSys(target, this.root);
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
    this.restores.close();
  }

  private hasLustre(): boolean {
    try {
      return readMounts(this.root).some(({ kind }) => kind === "lustre");
    } catch {
      return false; // no /proc: nothing tells
    }
  }

  /** Source of the Lustre mount that holds `path`. */
  private async lustreOf(path: string): Promise<string | undefined> {
    try {
      const mount = findMount(await realPath(path, this.options.timeoutMs), readMounts(this.root));
      return mount?.kind === "lustre" ? mount.source : undefined;
    } catch {
      return undefined; // the readers will say what is wrong with it
    }
  }

  private expect(paths: readonly string[], system: string): void {
    if (this.closed) return;
    for (const [rank, path] of paths.entries()) {
      if (this.places.has(path)) {
        const place = this.places.get(path);
        if (place !== undefined && isReleased(place.layout)) this.restores.add(path, rank);
        continue;
      }
      this.places.set(path, undefined);
      this.wanted.push({ path, system });
      if (this.places.size > MOST) this.places.delete(this.places.keys().next().value!);
    }
    this.askSoon(GATHER_MS);
  }

  private askSoon(ms: number): void {
    if (this.asking || this.closed || this.wanted.length === 0) return;
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      void this.ask();
    }, ms).unref();
  }

  private async ask(): Promise<void> {
    const now = performance.now();
    if (now < this.quietUntil) return this.askSoon(this.quietUntil - now);
    this.asking = true;
    // What the cap has room for: a large batch would keep stats of others waiting, and tell of its first file when the last is asked.
    const room = Math.max(LEAST_BATCH, Math.floor(this.options.polite?.there("stats") ?? BATCH));
    const told = await this.learn(this.wanted.splice(0, Math.min(BATCH, room)));
    this.asking = false;
    if (told) this.askSoon(0);
  }

  private askLayouts(paths: readonly string[]): ReturnType<typeof askFiles> {
    return askFiles(
      paths.map((path) => ({ path, xattr: "lustre.lov" })),
      this.options,
    );
  }

  /** False: there is no Python, layouts stay unknown. */
  private async learn(batch: readonly { path: string; system: string }[]): Promise<boolean> {
    const asked = this.askLayouts(batch.map(({ path }) => path));
    for (const { path } of batch) if (!this.learning.has(path)) this.learning.set(path, asked);
    const answers = await asked;
    for (const { path } of batch) if (this.learning.get(path) === asked) this.learning.delete(path);
    if (answers === undefined) return false;
    for (const [rank, { path, system }] of batch.entries()) {
      const answer = answers[rank]!;
      if ("code" in answer && answer.hung === true) {
        // Asked again when it is expected again.
        this.places.delete(path);
        this.quietUntil = performance.now() + QUIET_MS;
        continue;
      }
      const layout = layoutOf(answer, path);
      if (layout === undefined) continue;
      this.places.set(path, { system, layout, one: onlyTarget(layout, system) });
      if (isReleased(layout)) this.restores.add(path, rank);
    }
    return true;
  }

  /** Are these files still released? What does not tell is forgotten, and asked anew when it is expected again. */
  private async look(paths: readonly string[]): Promise<Told[]> {
    const answers = await this.askLayouts(paths);
    return paths.map((path, i) => {
      const answer = answers?.[i];
      const layout = answer && layoutOf(answer, path);
      if (layout === undefined) {
        this.places.delete(path);
        return answer === undefined || ("code" in answer && answer.hung === true) ? "silent" : "unclear";
      }
      const place = this.places.get(path);
      if (place !== undefined) this.places.set(path, { ...place, layout, one: onlyTarget(layout, place.system) });
      return isReleased(layout) ? "released" : "back";
    });
  }
}

/** Undefined: it has none of its own, did not answer, or has one that this version does not know. */
function layoutOf(answer: Answer, path: string): Layout | undefined {
  if (!("value" in answer)) return undefined;
  try {
    return decodeLov(answer.value, path);
  } catch {
    return undefined;
  }
}

function nameOf(system: string, ost: number): string {
  return `${system}-OST${ost.toString(16).padStart(4, "0")}`;
}

function onlyTarget(layout: Layout, system: string): readonly string[] | undefined {
  const components = readComponents(layout);
  const osts = new Set(components.flatMap((component) => component.osts));
  // Whatever has no objects has no bytes, and bytes on a metadata server are another target's.
  if (osts.size !== 1 || components.some(({ pattern }) => pattern.includes("mdt"))) return undefined;
  return [nameOf(system, [...osts][0]!)];
}

function targetsOfRange({ layout, system }: Place, offset: bigint, length: bigint): string[] {
  const { osts, mdt } = spreadOf(layout, offset, length);
  const names = [...osts.keys()].map((ost) => nameOf(system, ost));
  // The xattr does not tell which one.
  return mdt > 0n ? [...names, `${system}-MDT`] : names;
}
