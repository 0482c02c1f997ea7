// NIDs, what lnetctl prints in both indentations, RDMA devices.
import assert from "node:assert/strict";
import { test } from "node:test";
import { parseNets } from "../../src/doctor/lnet.ts";
import { netOf, nidsOf, typeOf } from "../../src/lustre/nids.ts";
import { rdmaDevices } from "../../src/doctor/rdma.ts";
import { factsOf, port, recorded, sampled } from "./scene.ts";

test("lnetctl net show -v: interfaces without the loopback, of 2.15 and of 2.17", () => {
  assert.deepEqual(parseNets(sampled("lnetctl-net-show-v.yaml")), [
    { nid: "10.0.8.101@o2ib", net: "o2ib", status: "up", health: 1000, timeouts: 0, interfaces: ["ib0"] },
    { nid: "10.0.8.102@o2ib", net: "o2ib", status: "up", health: 870, timeouts: 12, interfaces: ["ib1"] },
  ]);
  assert.deepEqual(parseNets(recorded("lnetctl-net-show-v.txt")), [
    { nid: "10.0.2.15@tcp", net: "tcp", status: "up", health: undefined, timeouts: 0, interfaces: ["eth0"] },
  ]);
  assert.deepEqual(parseNets(sampled("lnetctl-net-show-down.yaml")), []);
  assert.deepEqual(parseNets(recorded("as-nobody-lnetctl.stderr.txt")), []);
  const cut = sampled("lnetctl-net-show-v.yaml").slice(0, 1400);
  assert.deepEqual(
    parseNets(cut).map(({ nid }) => nid),
    ["10.0.8.101@o2ib"],
    "what came before the tool was given up",
  );
});

test("NIDs: of a mount with failover and several networks, network 0, a host name", () => {
  assert.deepEqual(nidsOf("10.0.8.11@o2ib,10.1.8.11@o2ib1:10.0.8.12@o2ib:/trainfs/team-a"), [
    "10.0.8.11@o2ib",
    "10.1.8.11@o2ib1",
    "10.0.8.12@o2ib",
  ]);
  assert.deepEqual(nidsOf("fs-01.fsx.us-east-1.amazonaws.com@tcp:/abc"), ["fs-01.fsx.us-east-1.amazonaws.com@tcp"]);
  assert.deepEqual(["1.2.3.4@tcp0", "1.2.3.4@o2ib0", "1.2.3.4@o2ib12", "0@lo", "17@kfi"].map(netOf), [
    "tcp",
    "o2ib",
    "o2ib12",
    "lo",
    "kfi",
  ]);
  assert.deepEqual(["o2ib12", "tcp3", "kfi", "efa1"].map(typeOf), ["o2ib", "tcp", "kfi", "efa"]);
});

test("RDMA devices: InfiniBand, RoCE, EFA, Omni-Path, Slingshot; rates and ports", () => {
  const facts = factsOf({
    ...port("mlx5_0", { net: "ib0" }),
    ...port("mlx5_1", { layer: "Ethernet", rate: "100 Gb/sec (2X HDR)", net: "eth1" }),
    ...port("rdmap36s0", { driver: "efa", layer: "Unspecified", state: "1: DOWN" }),
    ...port("hfi1_0", { driver: "hfi1" }),
    "sys/class/cxi/cxi0/device/uevent": "DRIVER=cxi_ss1",
    "sys/class/cxi/cxi0/device/net/hsn0/operstate": "up",
  });
  assert.deepEqual(
    rdmaDevices(facts).map(({ name, kind, active, ports, rate, interfaces }) => [
      name,
      kind,
      active,
      ports,
      rate,
      interfaces,
    ]),
    [
      ["hfi1_0", "Omni-Path", 1, 1, 400, []],
      ["mlx5_0", "InfiniBand", 1, 1, 400, ["ib0"]],
      ["mlx5_1", "RoCE", 1, 1, 100, ["eth1"]],
      ["rdmap36s0", "EFA", 0, 1, undefined, []],
      ["cxi0", "Slingshot", 1, 1, undefined, ["hsn0"]],
    ],
  );
});
