// Two checks that the HDF5 library lacks, put into h5wasm's WebAssembly when it is laid out (decision 0024). Without them a damaged chunk gives
// whatever lies behind it in memory, other values at each read:
// - a chunk that has fewer bytes, behind all its filters or without any, than its dataset's chunks have (H5D__chunk_lock);
// - packed numbers that are fewer than the scale-offset filter is told to unpack, or more than a chunk may have (H5Z__filter_scaleoffset).
//
// The places are found by their bytes, once each, or the build fails. Binaryen, which AssemblyScript brings, would do the same by reading
// and writing all 3.5 MB anew.

const hex = (text) => Buffer.from(text.replaceAll(/\s|;.*$/gm, ""), "hex");

/** Where nothing lies: below the first byte of the library's data. */
const MESSAGE_AT = 64;
const MESSAGE = Buffer.from("chunk of %u bytes, expected at least %u\0");

const EDITS = [
  {
    // "A chunk was read and unfiltered": ++rdcc->stats.nmisses.
    before: hex("20052005 2802d81b 41016a 3602d81b"),
    put: hex(`
      2006 28021c 2007 49 0440      ; if (bytes of the chunk < bytes that it should have) {
        418001 2006 28021c 360200   ;   *128 = the one
        418401 2007 360200          ;   *132 = the other
        4100 2100                   ;   ret_value = NULL
        418cc910 41e18808 41c525    ;   error(file, function, line,
        41e0c816 290300             ;     H5E_PLINE,
        41b0d216 290300             ;     H5E_READERROR,
        41c000 418001 108608        ;     MESSAGE_AT, 128)
        0c03                        ;   goto done
      0b                            ; }`),
  },
  {
    // "Shorter than 5 bytes?" asks for the room of the buffer: let that be what it holds.
    before: hex("20042802 00220d 4105480d"),
    put: hex("2004 2003 360200"),
  },
  {
    // So does "all bits are kept, nothing to do".
    before: hex("2004280200 210d0c"),
    put: hex("2004 2003 360200"),
  },
  {
    // Bits of a number and the smallest one are known: room for the numbers is next.
    before: hex("2016 2003 360228 201a201b6c"),
    put: hex(`
      201aad 2003ad 7e 42a8017c     ; 21 bytes and all numbers, in bits
      200dad 4203 86 56 0d03        ; if (> bits there are) goto "buffer too short"
      201aad 201bad 7e              ; bytes unpacked
      428080808001 56 0d03          ; if (> 256 MiB) goto "buffer too short"`),
  },
];

/** Throws where the library is not the one that this was made for. */
export function patchHdf5(given) {
  const wasm = Buffer.from(given.buffer, given.byteOffset, given.length);
  // What was looked for is still there, once.
  if (wasm.includes(MESSAGE)) throw new Error("h5wasm: the checks are in it already");
  const edits = EDITS.map(({ before, put }) => {
    const at = wasm.indexOf(before);
    if (at < 0 || wasm.indexOf(before, at + 1) >= 0)
      throw new Error(`h5wasm: ${before.toString("hex")} is not there once`);
    return { at, put };
  });
  const out = [wasm.subarray(0, 8)];
  for (const { id, begin, end } of sectionsOf(wasm)) {
    const body = wasm.subarray(begin, end);
    const [count, from] = number(wasm, begin);
    const rest = wasm.subarray(from, end);
    if (id === CODE) out.push(section(id, [leb(count), ...bodiesOf(wasm, count, from, edits)]));
    else if (id === DATA_COUNT) out.push(section(id, [leb(count + 1)]));
    else if (id === DATA) out.push(section(id, [leb(count + 1), rest, segment(MESSAGE_AT, MESSAGE)]));
    else out.push(section(id, [body]));
  }
  const patched = Buffer.concat(out);
  const grown = patched.length - wasm.length;
  if (!WebAssembly.validate(patched) || grown < EDITS.reduce((sum, { put }) => sum + put.length, MESSAGE.length))
    throw new Error("h5wasm: the checks were not put in");
  return patched;
}

const CODE = 10;
const DATA = 11;
const DATA_COUNT = 12;

function* sectionsOf(wasm) {
  for (let at = 8; at < wasm.length;) {
    const [length, begin] = number(wasm, at + 1);
    yield { id: wasm[at], begin, end: begin + length };
    at = begin + length;
  }
}

/** Function bodies, each with its length in front. */
function* bodiesOf(wasm, count, from, edits) {
  for (let i = 0, at = from; i < count; i++) {
    const [length, begin] = number(wasm, at);
    const end = begin + length;
    const pieces = [];
    let done = begin;
    for (const edit of edits.filter((one) => one.at >= begin && one.at < end).sort((a, b) => a.at - b.at)) {
      pieces.push(wasm.subarray(done, edit.at), edit.put);
      done = edit.at;
    }
    const body = Buffer.concat([...pieces, wasm.subarray(done, end)]);
    yield leb(body.length);
    yield body;
    at = end;
  }
}

/** In memory 0, at a constant address. */
function segment(at, bytes) {
  return Buffer.concat([hex("00 41"), signed(at), hex("0b"), leb(bytes.length), bytes]);
}

function section(id, parts) {
  const body = Buffer.concat(parts);
  return Buffer.concat([Buffer.of(id), leb(body.length), body]);
}

/** Unsigned LEB128 at `at`, and where it ends. */
function number(bytes, at) {
  let value = 0;
  for (let scale = 1; ; scale *= 128) {
    const byte = bytes[at++];
    value += (byte & 127) * scale;
    if (byte < 128) return [value, at];
  }
}

function leb(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
  return Buffer.from([...bytes, value]);
}

function signed(value) {
  return value < 64 ? Buffer.of(value) : Buffer.of((value & 127) | 128, value >> 7);
}
