// The part of the WebAssembly namespace that Athanor uses: TypeScript has it only in its DOM library.
declare global {
  namespace WebAssembly {
    class Memory {
      constructor(descriptor: { initial: number; maximum?: number; shared?: boolean });
      readonly buffer: ArrayBuffer | SharedArrayBuffer;
      grow(pages: number): number;
    }
    class Module {
      constructor(bytes: Uint8Array);
    }
    class Instance {
      constructor(module: Module, imports?: Record<string, Record<string, unknown>>);
      readonly exports: Record<string, unknown>;
    }
    class Table {
      constructor(descriptor: { element: "anyfunc"; initial: number });
      readonly length: number;
      get(index: number): unknown;
      grow(by: number, value?: unknown): number;
    }
    function validate(bytes: Uint8Array): boolean;
  }
}
export {};
