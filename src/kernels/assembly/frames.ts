import { crc32c, joinCrc, masked } from "./crc";
import { clearFault, fault, faultCode, inRecord } from "./fault";
import { FAULT_LENGTH_CRC, FAULT_PAYLOAD_CRC, FAULT_TOO_LONG, FAULT_TRUNCATED, MAX_PAYLOAD } from "./layout";

/** Payload bytes of the frame last read. */
export let payloadBytes: usize = 0;
/** CRC32C of the payload last checked. */
let payloadCrc: u32 = 0;
/** scanFrames: CRC32C of all bytes up to and with the records read. */
export let scanCrc: u32 = 0;
/** scanFrames: bytes of the whole records read. */
export let scanConsumed: usize = 0;
/** scanFrames: bytes that the unfinished record at the end takes in all; 0 = nothing unfinished. */
export let scanNeeded: usize = 0;

/**
 * u64 length │ u32 masked CRC of the length │ payload │ u32 masked CRC of the payload.
 * Returns the payload's address, or 0 with the fault noted.
 */
export function frame(p: usize, end: usize, checkCrc: bool): usize {
  const left = end - p;
  if (left < 12) return fault(FAULT_TRUNCATED, p, left, 12);
  const crc = masked(crc32c(p, 8, 0));
  const stored = load<u32>(p, 8);
  if (crc != stored) return fault(FAULT_LENGTH_CRC, p + 8, crc, stored);
  const length = load<u64>(p);
  if (length > <u64>MAX_PAYLOAD) return fault(FAULT_TOO_LONG, p, length, MAX_PAYLOAD);
  payloadBytes = <usize>length;
  const payload = p + 12;
  if (left < payloadBytes + 16) return fault(FAULT_TRUNCATED, payload, left - 12, length);
  if (checkCrc && !checkPayload(payload, payloadBytes)) return 0;
  return payload;
}

export function checkPayload(payload: usize, bytes: usize): bool {
  payloadCrc = crc32c(payload, bytes, 0);
  const crc = masked(payloadCrc);
  const stored = load<u32>(payload + bytes);
  if (crc == stored) return true;
  fault(FAULT_PAYLOAD_CRC, payload + bytes, crc, stored);
  return false;
}

/**
 * Walks at most `max` frames and checks them; an unfinished record at the end of the range is no fault (scanNeeded).
 * `crc`: CRC32C of the file's bytes before them.
 */
export function scanFrames(ptr: usize, length: usize, max: u32, offsets: usize, lengths: usize, crc: u32): u32 {
  clearFault();
  scanCrc = crc;
  scanNeeded = 0;
  const end = ptr + length;
  let p = ptr;
  let n: u32 = 0;
  while (n < max && p < end) {
    inRecord(n, p);
    const payload = frame(p, end, true);
    if (payload == 0) {
      if (faultCode == FAULT_TRUNCATED) {
        scanNeeded = end - p < 12 ? 16 : payloadBytes + 16;
        clearFault();
      }
      break;
    }
    store<u32>(offsets + (n << 2), <u32>(payload - ptr));
    store<u32>(lengths + (n << 2), <u32>payloadBytes);
    scanCrc = joinCrc(crc32c(p, 12, scanCrc), payloadCrc, payloadBytes);
    scanCrc = crc32c(payload + payloadBytes, 4, scanCrc);
    p = payload + payloadBytes + 4;
    n++;
  }
  scanConsumed = p - ptr;
  return n;
}
