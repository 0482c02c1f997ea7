/**
 * Plugins: puts `chunkFault` in front of the filters that the HDF5 library loads. It asks a plugin for its class once, by name; the class names its
 * function by a place in the table of functions, and that place becomes one of ours, which asks first and calls on.
 *
 * H5Z_class2_t  │ i32 version 1 │ i32 filter id │ u32 encodes │ u32 decodes │ name │ can apply │ set local │ filter │
 *
 * @example
 * guardPlugins(imports.env, () => instance.exports.__indirect_function_table, () => h5.HEAPU8, (why) => console.error(why));
 */
import { chunkFault } from "./guard.ts";

/** Flags, number and place of the parameters, bytes of the chunk, place of the buffer's size, place of its address. 0: it failed. */
type Filter = (flags: number, count: number, parameters: number, bytes: number, size: number, buffer: number) => number;

/** What h5wasm's script gives its WebAssembly. */
export type DynamicLinking = { ["_dlsym_js"]?: (handle: number, symbol: number, index: number) => number };

const ASKED = Buffer.from("H5PLget_plugin_info\0");
const REVERSE = 0x100;
/** (import "e" "f") as (export "f"), of the type Filter: only WebAssembly's functions go into a table. */
const PASS_ON = Buffer.from(
  "0061736d01000000" + "010b0160067f7f7f7f7f7f017f" + "02070101650166" + "0000" + "070501016600" + "00",
  "hex",
);

/** `refused` is told what is wrong, before the library is told that the filter failed. */
export function guardPlugins(
  env: DynamicLinking,
  table: () => WebAssembly.Table,
  heap: () => Uint8Array,
  refused: (why: string) => void,
): void {
  const find = env["_dlsym_js"];
  if (find === undefined) throw new Error("h5wasm does not load plugins as it did");
  env["_dlsym_js"] = (handle, symbol, index) => {
    const found = find(handle, symbol, index);
    if (found === 0 || Buffer.compare(heap().subarray(symbol, symbol + ASKED.length), ASKED) !== 0) return found;
    const filterClass = (table().get(found) as () => number)();
    const words = new Int32Array(heap().buffer, filterClass, 8);
    const [id, place] = [words[1]!, words[7]!];
    const undo = table().get(place) as Filter;
    const own: Filter = (flags, count, parameters, bytes, size, buffer) => {
      if ((flags & REVERSE) !== 0) {
        const memory = new Uint32Array(heap().buffer);
        const given = Array.from(memory.subarray(parameters >>> 2, (parameters >>> 2) + count));
        const at = memory[buffer >>> 2]!;
        const wrong = chunkFault(id, heap().subarray(at, at + (bytes >>> 0)), given);
        if (wrong !== undefined) {
          refused(wrong);
          return 0;
        }
      }
      return undo(flags, count, parameters, bytes, size, buffer);
    };
    const { exports } = new WebAssembly.Instance(new WebAssembly.Module(PASS_ON), { e: { f: own } });
    words[7] = table().grow(1, exports["f"]);
    return found;
  };
}
