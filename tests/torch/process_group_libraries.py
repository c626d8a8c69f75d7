"""Accelerate and Lightning as their users write them, over the process group."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from process_group_checks import begin
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from ringlet.comm.contract import Communicator

NUM_SAMPLES = 32


def _samples() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(NUM_SAMPLES, 5, generator=generator)
    return TensorDataset(inputs, inputs.sum(1, keepdim=True))


def _digest(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()


def with_accelerate(comm: Communicator) -> dict[str, Any]:
    """The group is made first: Accelerate takes it over. A gradient step on the joined batch, and gathered metrics."""
    from accelerate import Accelerator

    begin(comm)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(comm.rank)
    model = nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(_samples(), batch_size=NUM_SAMPLES // comm.size)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for _ in range(3):
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
        "wrapped": type(model).__name__,
        "losses": losses,
        "digest": _digest(unwrapped),
    }
    accelerator.end_training()
    return result


def with_lightning(comm: Communicator) -> dict[str, Any]:
    """DDP's strategy with another name for the backend."""
    import lightning
    from lightning.pytorch.strategies import DDPStrategy

    class Regression(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(comm.rank)
            self.layer = nn.Linear(5, 1)
            self.losses: list[float] = []

        def training_step(self, batch: list[Tensor], _: int) -> Tensor:
            loss = nn.functional.mse_loss(self.layer(batch[0]), batch[1])
            self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
            return loss

        def on_train_epoch_end(self) -> None:
            self.losses.append(float(self.trainer.callback_metrics["loss"]))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.05)

    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=comm.size,
        strategy=DDPStrategy(process_group_backend="ringlet"),
        max_epochs=3,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Regression()
    trainer.fit(model, DataLoader(_samples(), batch_size=NUM_SAMPLES // comm.size))
    return {
        "processes": trainer.world_size,
        "backend": torch.distributed.get_backend(),
        "losses": model.losses,
        "digest": _digest(model),
    }
