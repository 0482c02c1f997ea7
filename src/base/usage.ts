/** Wrong use: an argument or option that cannot be meant. Exit code 2. */
import { defineError } from "./errors.ts";

export const Usage = defineError("ATH_USAGE", 2);
