/** The new process of index-load.ts: prints how long the load of the index in the given folder took, as JSON. */
import { load } from "./index-load.ts";

process.stdout.write(JSON.stringify(await load(process.argv[2]!)));
