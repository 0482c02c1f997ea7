// Which mounts are told to have a slow link to each OST.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { EC2, VENDOR_FILE, hasSlowLinks } from "../../src/lustre/slow-links.ts";

test("on EC2, over TCP; the connections to the OSTs tell, and not the mount where there are some", (t) => {
  const root = mkdtempSync(join(tmpdir(), "athanor-links-"));
  t.after(() => rmSync(root, { recursive: true }));
  const write = (path: string, text: string): void => {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  };
  // What `mount` shows of an FSx: the name of the server has become an address.
  const mount = { source: "172.31.14.250@tcp:/abcdefgh" };
  assert.equal(hasSlowLinks(mount, root), false);
  write(VENDOR_FILE, "QEMU\n");
  assert.equal(hasSlowLinks(mount, root), false);
  write(VENDOR_FILE, `${EC2}\n`);
  assert.equal(hasSlowLinks(mount, root), true);
  assert.equal(hasSlowLinks({ source: "172.31.14.250@efa:/abcdefgh" }, root), false);
  write("sys/fs/lustre/osc/other-OST0000-osc-ff00/ost_conn_uuid", "10.0.0.9@efa\n");
  assert.equal(hasSlowLinks(mount, root), true);
  write("sys/fs/lustre/osc/abcdefgh-OST0000-osc-ff00/ost_conn_uuid", "172.31.14.251@efa\n");
  assert.equal(hasSlowLinks(mount, root), false);
});
