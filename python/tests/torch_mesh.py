"""Four processes of one torch.distributed job (gloo, CPU), each with loaders of several meshes: what they were given
goes to RANK.json. One import of torch for all: they are forked."""

PROGRAM = """
import json, os, sys
import multiprocessing
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from athanor.torch import Loader

DATA, OUT, WIDTH = sys.argv[1], sys.argv[2], int(sys.argv[3])

def main(rank):
    os.environ.update(RANK=str(rank), WORLD_SIZE="4", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="4")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{OUT}/rendezvous", rank=rank, world_size=4)
    plain = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    ways = {
        "dp×tp": {"mesh": plain},
        "dp_replicate×dp_shard": {"mesh": init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp_replicate", "dp_shard"))},
        "dp×cp": {"mesh": init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "cp"))},
        "group": {"dp_group": plain.get_group("dp")},
        "part": {"mesh": plain["dp"]},
    }
    result = {}
    for name, options in ways.items():
        with Loader(DATA, global_batch_size=16, grad_accum=1, max_length=WIDTH, **options) as loader:
            batches = [batch for batch, _ in zip(loader.repeat(), range(5))]
            assert batches[0]["input_ids"].shape[1] == len(loader.cp_positions)
            dist.barrier()
            result[name] = {
                "dp": loader.rank,
                "ids": [batch["id"].tolist() for batch in batches],
                "positions": loader.cp_positions.tolist(),
                "decoded": loader.stats()["agent"]["stages"]["decodedRows"],
            }
            dist.barrier()
    with open(f"{OUT}/{rank}.json", "w") as file:
        json.dump(result, file)
    dist.destroy_process_group()

if __name__ == "__main__":
    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=main, args=(rank,)) for rank in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    sys.exit(max(abs(child.exitcode) for child in children))
"""
