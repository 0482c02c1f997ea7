/**
 * Runs conversations of python/tests/test_chat_template.py through our chat templates: a JSON list of {file, template, options, parseSpecial, chats}
 * on stdin (chats: [messages, tools or null], both JSON texts); for each chat {ids, marked} or {error}, as JSON on stdout. No test by itself.
 */
import { readFileSync } from "node:fs";
import { openChat } from "../../src/tokenizer/chat/open.ts";
import { compileFile } from "./fixtures.ts";

interface Case {
  file: string;
  template: string;
  options: string;
  parseSpecial: boolean;
  chats: [string, string | null][];
}

const compiledFiles = new Map<string, ReturnType<typeof compileFile>>();

function compiledOnce(file: string): ReturnType<typeof compileFile> {
  const compiled = compiledFiles.get(file) ?? compileFile(file);
  compiledFiles.set(file, compiled);
  return compiled;
}

const answers = (JSON.parse(readFileSync(0, "utf8")) as Case[]).map(
  ({ file, template, options, parseSpecial, chats }) => {
    const compiled = compiledOnce(file);
    try {
      const spec = { name: "default", source: template, tokens: compiled.chat.tokens, options };
      const chat = openChat(compiled, spec, parseSpecial);
      return chats.map(([messages, tools]) => {
        try {
          const { ids, marked, length } = chat.encode(messages, tools ?? undefined, Infinity);
          return { ids: Array.from(ids.subarray(0, length)), marked: Array.from(marked.subarray(0, length)) };
        } catch (error) {
          return { error: String(error) };
        }
      });
    } catch (error) {
      return chats.map(() => ({ error: String(error) }));
    }
  },
);
process.stdout.write(JSON.stringify(answers));
