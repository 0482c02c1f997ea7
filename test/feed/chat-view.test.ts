import assert from "node:assert/strict";
import { test } from "node:test";
import { chatSpec } from "../../src/feed/chat-view.ts";
import type { CompiledTokenizer } from "../../src/tokenizer/types.ts";

test("a template is one that the tokenizer has: names of JavaScript's own are none", () => {
  const tokenizer = { file: "t.json", chat: { templates: { default: "{{ 1 }}" }, tokens: "{}" } };
  const spec = (template: string) =>
    chatSpec({ template, source: undefined, options: "{}" }, tokenizer as unknown as CompiledTokenizer);
  assert.equal(spec("default").spec?.source, "{{ 1 }}");
  for (const name of ["constructor", "toString", "__proto__"]) {
    assert.equal(spec(name).spec, undefined);
    assert.match(spec(name).missing, /it has default/);
  }
});
