"""A training program as Horovod's users write it for PyTorch; nothing in it knows of Ringlet."""

import json
import os
import sys

import horovod.torch as hvd
import torch
from horovod.common.exceptions import HorovodInternalError
from horovod.torch.elastic import TorchState
from horovod.torch.mpi_ops import allreduce_async, synchronize


def main() -> None:
    hvd.init()
    torch.manual_seed(hvd.rank())
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05 * hvd.size(), momentum=0.9)
    compression = hvd.Compression.fp16 if "--fp16" in sys.argv else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), compression=compression, op=hvd.Average
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    generator = torch.Generator().manual_seed(7)
    data = torch.randn(128, 6, generator=generator)
    labels = (data[:, 0] * data[:, 1] > 0).long()
    dataset = torch.utils.data.TensorDataset(data, labels)
    sampler = torch.utils.data.distributed.DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank())
    loader = torch.utils.data.DataLoader(dataset, batch_size=16, sampler=sampler)
    for epoch in range(40):
        sampler.set_epoch(epoch)
        for batch, target in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch), target).backward()
            optimizer.step()

    correct = (model(data).argmax(1) == labels).float().mean()
    accuracy = hvd.allreduce(correct, name="accuracy")
    total = synchronize(allreduce_async(torch.ones(3), op=hvd.Sum, name="total"))
    digest = sum(float(parameter.detach().double().sum()) for parameter in model.parameters())
    digests = hvd.allgather_object(digest)
    state = TorchState(model=model, optimizer=optimizer, epoch=3)
    record = {
        "rank": hvd.rank(),
        "size": hvd.size(),
        "accuracy": float(accuracy),
        "total": total.tolist(),
        "digests": digests,
        "epoch": state.epoch,
        "is_error": issubclass(HorovodInternalError, RuntimeError),
        "environment": {
            name: os.environ.get(f"HOROVOD_{name}") for name in ("RANK", "SIZE", "LOCAL_RANK", "CROSS_SIZE")
        },
    }
    sys.stdout.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
