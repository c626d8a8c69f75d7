"""Accelerate, Lightning and Fabric as their users write them, over the process group."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

NUM_SAMPLES = 32
NUM_RANKS = 2
RATE = 0.05


def _samples() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(NUM_SAMPLES, 5, generator=generator)
    return TensorDataset(inputs, inputs.sum(1, keepdim=True))


def _loader() -> DataLoader[Any]:
    return DataLoader(_samples(), batch_size=NUM_SAMPLES // NUM_RANKS)


def _digest(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()


def with_accelerate(_: Path) -> dict[str, Any]:
    """The group is made first: Accelerate takes it over. A gradient step on the joined batch, and gathered metrics."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    torch.manual_seed(dist.get_rank())
    model = nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    model, optimizer, loader = accelerator.prepare(model, optimizer, _loader())
    losses = []
    for _epoch in range(3):
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(inputs), targets)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather_for_metrics(loss.detach()).mean().item())
    accelerator.wait_for_everyone()
    unwrapped = accelerator.unwrap_model(model)
    result = {
        "processes": accelerator.num_processes,
        "backend": dist.get_backend(),
        "losses": losses,
        "digest": _digest(unwrapped),
    }
    accelerator.end_training()
    return result


def with_lightning(_: Path) -> dict[str, Any]:
    """DDP's strategy with another name for the backend: under torchrun it makes the group itself."""
    import lightning
    from lightning.pytorch.strategies import DDPStrategy

    class Regression(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 1)
            self.losses: list[float] = []

        def training_step(self, batch: list[Tensor], _: int) -> Tensor:
            loss = nn.functional.mse_loss(self.layer(batch[0]), batch[1])
            self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
            return loss

        def on_train_epoch_end(self) -> None:
            self.losses.append(float(self.trainer.callback_metrics["loss"]))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=RATE)

    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=NUM_RANKS,
        strategy=DDPStrategy(process_group_backend="ringlet"),
        max_epochs=3,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    torch.manual_seed(trainer.global_rank)
    model = Regression()
    trainer.fit(model, _loader())
    return {
        "processes": trainer.world_size,
        "backend": dist.get_backend(),
        "losses": model.losses,
        "digest": _digest(model),
    }


def with_fabric(_: Path) -> dict[str, Any]:
    """The loop is the user's own; under torchrun Fabric makes the group itself."""
    from lightning.fabric import Fabric
    from lightning.fabric.strategies import DDPStrategy

    fabric = Fabric(accelerator="cpu", devices=NUM_RANKS, strategy=DDPStrategy(process_group_backend="ringlet"))
    fabric.launch()
    torch.manual_seed(fabric.global_rank)
    model = nn.Linear(5, 1)
    wrapped, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=RATE))
    loader = fabric.setup_dataloaders(_loader())
    losses = []
    for _epoch in range(3):
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(wrapped(inputs), targets)
            fabric.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(fabric.all_reduce(loss.detach())))
    return {
        "processes": fabric.world_size,
        "backend": dist.get_backend(),
        "losses": losses,
        "digest": _digest(model),
    }


CHECKS: tuple[Callable[[Path], dict[str, Any]], ...] = (with_accelerate, with_fabric, with_lightning)
MAKE_GROUPS = (with_fabric, with_lightning)
"""Make the group themselves where torchrun has told them how."""
