/**
 * Placement on Lustre: on which OSTs the files in use lie, and which of them are released.
 *
 * Contract: `Places` of storage/places.ts. Layouts are asked for in the background, once a file, {@link BATCH} at a time, by a process
 * that may be left behind (`ask.ts`).
 *
 * @example
 * const lustre = new LustrePlaces({ tell: console.warn });
 * lustre.at(mount).expect(["/mnt/lustre/d/a.tar"]);
 * lustre.targetsOf("/mnt/lustre/d/a.tar", 0, 8 << 20); // later: ["lustre-OST0003"]
 */
import { Learned } from "../storage/learned.ts";
import type { Wanted } from "../storage/learned.ts";
import { hostRoot } from "../storage/mounts.ts";
import type { Mount } from "../storage/mounts.ts";
import type { Home, Places } from "../storage/places.ts";
import { askFiles } from "./ask.ts";
import type { Answer, AskOptions } from "./ask.ts";
import { isReleased, readComponents, spreadOf } from "./layout.ts";
import type { Layout } from "./layout.ts";
import { decodeLov } from "./lov.ts";
import { requestBytes } from "./request-size.ts";
import { Restores } from "./restores.ts";
import type { RestoreOptions, Told } from "./restores.ts";
import { mountHolding } from "./survey.ts";
import { fileSystemOf, stateInSys } from "./targets.ts";

export interface LustreOptions extends AskOptions, Pick<RestoreOptions, "atOnce" | "pollMs"> {
  /** Where /proc and /sys are looked for. @default $ATHANOR_HOST_ROOT, else `/` */
  root?: string;
  /** Something that people should know of. */
  tell?: (text: string) => void;
  /** Data of this Lustre file system is used from now on. */
  onSystem?: (system: string) => void;
}

/** Files that one process asks for. */
const BATCH = 512;
/** A process for fewer would cost more than its questions. */
const LEAST_BATCH = 16;

interface Place {
  system: string;
  layout: Layout;
  /** Where all its bytes lie on one target, that one. */
  one: readonly string[] | undefined;
}

export class LustrePlaces implements Places {
  /** Files that are waited for. */
  readonly restores: Restores;
  private readonly options: LustreOptions;
  private readonly root: string;
  private readonly places: Learned<Place>;
  /** Files that take up no space for other reasons. */
  private readonly holes = new Set<string>();

  constructor(options: LustreOptions = {}) {
    this.options = options;
    this.root = options.root ?? hostRoot();
    this.restores = new Restores({ ...options, look: (paths) => this.look(paths) });
    this.places = new Learned({
      // What the cap has room for: a large batch would keep stats of others waiting, and tell of its first file when the last is asked.
      batch: () => Math.min(BATCH, Math.max(LEAST_BATCH, Math.floor(options.polite?.there("stats") ?? BATCH))),
      ask: (batch) => this.ask(batch),
      onFound: (path, { layout }, rank) => {
        if (isReleased(layout)) this.restores.add(path, rank);
      },
    });
  }

  at({ source }: Mount): Pick<Home, "requestBytes" | "expect"> {
    const system = fileSystemOf(source);
    this.options.onSystem?.(system);
    return {
      requestBytes: requestBytes(system, this.root),
      expect: (paths) => this.places.expect(paths, system),
    };
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
   */
  async whenThere(path: string): Promise<void> {
    if (!this.holes.has(path)) {
      const place = await this.places.now(path, () => this.systemOf(path));
      if (place === undefined) this.holes.add(path);
    }
    await this.restores.arrival(path);
  }

  stateOf(target: string): string | undefined {
    return stateInSys(target, this.root);
  }

  close(): void {
    this.places.close();
    this.restores.close();
  }

  private async systemOf(path: string): Promise<string | undefined> {
    const mount = await mountHolding(path, this.root, this.options.timeoutMs);
    return mount?.kind === "lustre" ? fileSystemOf(mount.source) : undefined;
  }

  private async ask(batch: readonly Wanted[]): Promise<(Place | "silent" | undefined)[] | undefined> {
    const answers = await this.askLayouts(batch.map(({ path }) => path));
    return answers?.map((answer, i) => {
      if ("code" in answer && answer.hung === true) return "silent";
      const { path, system } = batch[i]!;
      const layout = layoutOf(answer, path);
      return layout && { system, layout, one: onlyTarget(layout, system) };
    });
  }

  private askLayouts(paths: readonly string[]): ReturnType<typeof askFiles> {
    return askFiles(
      paths.map((path) => ({ path, xattr: "lustre.lov" })),
      this.options,
    );
  }

  /** Are these files still released? What does not tell is forgotten, and asked anew when it is expected again. */
  private async look(paths: readonly string[]): Promise<Told[]> {
    const answers = await this.askLayouts(paths);
    return paths.map((path, i) => {
      const answer = answers?.[i];
      const layout = answer && layoutOf(answer, path);
      if (layout === undefined) {
        this.places.forget(path);
        return answer === undefined || ("code" in answer && answer.hung === true) ? "silent" : "unclear";
      }
      const place = this.places.get(path);
      if (place !== undefined) this.places.keep(path, { ...place, layout, one: onlyTarget(layout, place.system) });
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
