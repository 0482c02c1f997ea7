import { maskedCrc } from "./crc";
import { clearFault, fault, faultCode, inRecord } from "./fault";
import { FAULT_LENGTH_CRC, FAULT_PAYLOAD_CRC, FAULT_TOO_LONG, FAULT_TRUNCATED, MAX_PAYLOAD } from "./layout";

/** Payload bytes of the frame last read. */
export let payloadBytes: usize = 0;
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
  const crc = maskedCrc(p, 8);
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
  const crc = maskedCrc(payload, bytes);
  const stored = load<u32>(payload + bytes);
  if (crc == stored) return true;
  fault(FAULT_PAYLOAD_CRC, payload + bytes, crc, stored);
  return false;
}

/** Walks at most `max` frames; an unfinished record at the end of the range is no fault (scanNeeded). */
export function scanFrames(ptr: usize, length: usize, max: u32, offsets: usize, lengths: usize, checkCrc: bool): u32 {
  clearFault();
  scanNeeded = 0;
  const end = ptr + length;
  let p = ptr;
  let n: u32 = 0;
  while (n < max && p < end) {
    inRecord(n, p);
    const payload = frame(p, end, checkCrc);
    if (payload == 0) {
      if (faultCode == FAULT_TRUNCATED) {
        scanNeeded = end - p < 12 ? 16 : payloadBytes + 16;
        clearFault();
      }
      break;
    }
    store<u32>(offsets + (n << 2), <u32>(payload - ptr));
    store<u32>(lengths + (n << 2), <u32>payloadBytes);
    p = payload + payloadBytes + 4;
    n++;
  }
  scanConsumed = p - ptr;
  return n;
}
