import { fileURLToPath } from "node:url";
/** test/fixtures of the sources; the tests run in dist/test/formats. */
export const fixtures: string = fileURLToPath(new URL("../../../test/fixtures", import.meta.url));
