// Protobuf's wire format: varints, tags, and what to do with fields that nobody asked for.

/** Address behind the varint or field last read; 0: it was malformed. */
export let next: usize = 0;

export function varint(p: usize, end: usize): u64 {
  if (p < end) {
    const b = load<u8>(p);
    if (b < 0x80) {
      next = p + 1;
      return b;
    }
  }
  return longVarint(p, end);
}

// At most ten bytes; bits beyond 64 fall off, as in protobuf's own parsers.
function longVarint(p: usize, end: usize): u64 {
  let value: u64 = 0;
  let shift: u64 = 0;
  while (p < end && shift < 70) {
    const b = <u64>load<u8>(p++);
    value |= (b & 0x7f) << shift;
    if (b < 0x80) {
      next = p;
      return value;
    }
    shift += 7;
  }
  next = 0;
  return 0;
}

/** A tag; malformed if it is field 0 or does not fit 32 bits. */
export function tagAt(p: usize, end: usize): u32 {
  const tag = varint(p, end);
  if (tag < 8 || tag > 0xffffffff) next = 0;
  return <u32>tag;
}

/** The length of a length-delimited field; malformed if it passes `end`. `next` is the address of its content. */
export function lengthAt(p: usize, end: usize): usize {
  const length = varint(p, end);
  if (next != 0 && length > <u64>(end - next)) next = 0;
  return <usize>length;
}

/** Passes over the value of a field whose tag was just read. */
export function skipField(tag: u32, p: usize, end: usize, depth: u32 = 0): void {
  switch (tag & 7) {
    case 0:
      varint(p, end);
      return;
    case 1:
      next = end - p >= 8 ? p + 8 : 0;
      return;
    case 2: {
      const length = lengthAt(p, end);
      if (next != 0) next += length;
      return;
    }
    case 3: // a group, closed by the end tag of the same field; protobuf's parsers allow a depth of 100 as well
      while (depth < 100) {
        const inner = tagAt(p, end);
        if (next == 0 || (inner & 7) == 4) {
          if (inner >>> 3 != tag >>> 3) next = 0;
          return;
        }
        skipField(inner, next, end, depth + 1);
        if (next == 0) return;
        p = next;
      }
      next = 0;
      return;
    case 5:
      next = end - p >= 4 ? p + 4 : 0;
      return;
    default:
      next = 0;
  }
}

/** Equal bytes? `length` bytes each. */
export function sameBytes(a: usize, b: usize, length: usize): bool {
  while (length >= 8) {
    if (load<u64>(a) != load<u64>(b)) return false;
    a += 8;
    b += 8;
    length -= 8;
  }
  while (length > 0) {
    if (load<u8>(a) != load<u8>(b)) return false;
    a++;
    b++;
    length--;
  }
  return true;
}
