/** Version of the package, the one that the handshake prints. */
import manifest from "../../package.json" with { type: "json" };

export const VERSION: string = manifest.version;
