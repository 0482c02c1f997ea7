/**
 * Segment: the agent's side of a session's segment file (picture in `docs/reference/protocol.md`).
 *
 * Written with pwrite, not mapped: a warm tmpfs page takes a copy from the kernel at 9 GB/s here, a mapping at 11, and
 * a mapping needs a native package, can be truncated under us (SIGBUS) and must be unmapped by hand (decision 0006).
 * A batch is two writes: the slot's bytes, then its sequence number.
 */
import { closeSync, constants, fstatSync, openSync, readSync, statSync, writeSync } from "node:fs";
import { join } from "node:path";
import type { SlotTarget } from "../feed/batcher.ts";
import { SegmentRefused } from "./errors.ts";
import { layout, NEVER } from "./layout.ts";

export interface SegmentRequest {
  pid: number;
  /** Descriptor in the client's process; null: `path`, a file name in the run directory. */
  fd: number | null;
  path: string | null;
  nonce: string;
  slots: number;
}

const { header, slot } = layout;

export class Segment implements SlotTarget {
  readonly slots: number;
  private readonly fd: number;
  private readonly slotBytes: number;
  private readonly small = Buffer.alloc(8);
  private readonly ring: () => void;
  /** Sequence number of the batch to publish next. */
  private next = 1;
  /** Batches up to this one are known to be released. */
  private released = 0;
  /** Batch for which the client sleeps; 0: it does not, as far as is known. It rings before it sleeps. */
  private asleep = 0;
  private closed = false;

  /** Opens and checks what the client offered; writes nothing before the nonce has been seen. */
  constructor(request: SegmentRequest, slotBytes: number, runDir: string, ring: () => void) {
    this.slots = request.slots;
    this.slotBytes = slotBytes;
    this.ring = ring;
    const place = placeOf(request, runDir);
    this.fd = openRegular(place);
    try {
      this.check(request, place);
    } catch (error) {
      closeSync(this.fd);
      throw error;
    }
  }

  /** The batch that comes next: where a seek begins. */
  get upcoming(): number {
    return this.next;
  }

  writable(): boolean {
    if (this.closed) return false;
    const first = this.next - this.slots;
    if (first <= this.released) return true;
    const half = first + Math.max(0, (this.slots >> 1) - 1);
    // Released in turn: one look tells of half of the slots.
    if (this.sees(half) || this.sees(first)) return true;
    // Ask to be woken when half of them are free, then look again: the client may just have released one.
    this.write(header.wakeAt, BigInt(half));
    return this.sees(first);
  }

  publish(bytes: Uint8Array): void {
    const at = this.slotAt(this.next);
    for (let done = 0; done < bytes.length;) {
      done += writeSync(this.fd, bytes, done, bytes.length - done, at + 8 + done);
    }
    this.write(at + slot.seq, BigInt(this.next));
    this.next++;
    this.wake();
  }

  drained(): boolean {
    return this.next - 1 <= this.released || this.sees(this.next - 1);
  }

  /** The client rang: it sleeps for a batch, or slots came free. */
  rangBell(): void {
    if (this.closed) return;
    this.write(header.wakeAt, NEVER);
    this.asleep = this.read(header.waiting);
    this.wake();
  }

  close(): void {
    if (this.closed) return;
    this.closed = true;
    closeSync(this.fd);
  }

  private wake(): void {
    if (this.asleep === 0 || this.asleep >= this.next) return;
    this.asleep = 0;
    this.ring();
  }

  /** Looks whether a batch beyond `released` that was published has been released; then all before it have been, too. */
  private sees(batch: number): boolean {
    if (batch >= this.next || this.read(this.slotAt(batch) + slot.released) < batch) return false;
    this.released = batch;
    return true;
  }

  private slotAt(batch: number): number {
    return layout.headerBytes + ((batch - 1) % this.slots) * this.slotBytes;
  }

  private read(at: number): number {
    readSync(this.fd, this.small, 0, 8, at);
    return this.small.readUInt32LE(0) + this.small.readUInt32LE(4) * 4294967296;
  }

  private write(at: number, value: bigint): void {
    this.small.writeBigUInt64LE(value);
    writeSync(this.fd, this.small, 0, 8, at);
  }

  private check(request: SegmentRequest, place: string): void {
    const { size } = fstatSync(this.fd);
    const need = layout.headerBytes + request.slots * this.slotBytes;
    const refuse = (what: string): never => {
      throw new SegmentRefused(
        `the client's segment ${what}`,
        { file: place },
        "client and agent must be of the same version and see the same processes (pid namespace)",
      );
    };
    if (request.slots < 2) refuse(`has ${request.slots} slots, expected at least 2`);
    if (size < need || size > layout.maxSegmentBytes)
      refuse(`has ${size} bytes, expected ${need} to ${layout.maxSegmentBytes}`);
    const head = Buffer.alloc(64);
    readSync(this.fd, head, 0, head.length, 0);
    const magic = head.toString("latin1", header.magic, header.magic + 8);
    if (magic !== layout.magic) refuse(`begins with ${JSON.stringify(magic)}, expected ${layout.magic}`);
    const version = head.readUInt32LE(header.layoutVersion);
    if (version !== layout.layoutVersion) refuse(`has layout version ${version}, expected ${layout.layoutVersion}`);
    const nonce = head.toString("hex", header.nonce, header.nonce + 16);
    if (nonce !== request.nonce) refuse("is another one than the client offered (its nonce differs)");
    const slots = head.readUInt32LE(header.slots);
    const bytes = Number(head.readBigUInt64LE(header.slotBytes));
    if (slots !== request.slots || bytes !== this.slotBytes) {
      refuse(`has ${slots} slots of ${bytes} bytes, expected ${request.slots} of ${this.slotBytes}`);
    }
  }
}

function placeOf(request: SegmentRequest, runDir: string): string {
  if (request.fd !== null) return `/proc/${request.pid}/fd/${request.fd}`;
  if (request.path === null || !/^[A-Za-z0-9._-]+$/.test(request.path) || request.path.startsWith(".")) {
    throw new SegmentRefused(`segment path must be a plain file name in the run directory, found ${request.path}`);
  }
  return join(runDir, request.path);
}

/** Looks before it opens: opening a pipe or a device by mistake could block. */
function openRegular(place: string): number {
  try {
    if (!statSync(place).isFile()) throw new Error("it is not a plain file");
    return openSync(place, constants.O_RDWR);
  } catch (error) {
    throw new SegmentRefused(
      "the client's segment cannot be opened",
      { file: place },
      "agent and clients must run as the same user in one pid namespace",
      error,
    );
  }
}
