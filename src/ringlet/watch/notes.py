"""The events of a run in words; metrics of steps and epochs have their curves instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

from ringlet.training.events import number
from ringlet.watch.run_files import count, metrics_text, text

MAX_NOTES = 400


@dataclass(frozen=True)
class Note:
    """One line: ``kind`` is "info", "good", "warning" or "bad"; ``step`` marks it on the curves, where it has one."""

    kind: str
    words: str
    step: int | None = None


@final
class Notes:
    """The newest notes; those left out at the beginning are counted."""

    def __init__(self, limit: int = MAX_NOTES) -> None:
        self.items: list[dict[str, Any]] = []
        self.num_dropped = 0
        self._limit = limit

    def add(self, time: float | None, note: Note | None) -> None:
        """Append a line."""
        if note is None:
            return
        self.items.append({"time": time, "kind": note.kind, "text": note.words, "step": note.step})
        if len(self.items) > self._limit:
            self.items.pop(0)
            self.num_dropped += 1


def describe(record: Mapping[str, Any]) -> Note | None:
    """What an event means in words; None if it has its place elsewhere on the page."""
    writer = _WRITERS.get(record["event"])
    return None if writer is None else writer(record)


def _started(record: Mapping[str, Any]) -> Note:
    workers = count(record.get("num_workers"))
    return Note(
        "info",
        f"started: {text(record.get('model'), 80)} on {text(record.get('dataset'), 80)}, "
        f"{workers} {'worker' if workers == 1 else 'workers'}, {count(record.get('num_epochs'))} epochs",
    )


def _resumed(record: Mapping[str, Any]) -> Note:
    step = count(record.get("step"))
    about = f"{count(record.get('epoch'))} epochs and {step} updates, {count(record.get('num_workers'))} workers"
    return Note("warning", f"resumed from the checkpoint after {about}", step)


def _skipped(record: Mapping[str, Any]) -> Note:
    step = count(record.get("step"))
    return Note("bad", f"update {step} was skipped: {text(record.get('problem'))}", step)


def _epoch(record: Mapping[str, Any]) -> Note:
    seconds = number(record.get("seconds")) or 0.0
    best = ["best so far"] if record.get("is_best") is True else []
    words = f"epoch {count(record.get('epoch'))}: {metrics_text(record.get('figures'))} ({seconds:.2f} s)"
    return Note("good" if best else "info", "; ".join([words, *best, *_messages(record)]))


def _evaluated(record: Mapping[str, Any]) -> Note:
    moment = {"before": "before training", "after": "after training"}.get(text(record.get("moment")), "")
    return Note("good", f"test {moment}: {metrics_text(record.get('figures'))}".replace(" :", ":"))


def _trained(record: Mapping[str, Any]) -> Note:
    seconds, rate = number(record.get("seconds")) or 0.0, number(record.get("samples_per_second")) or 0.0
    num_steps = count(record.get("num_steps"))
    words = f"training done: {num_steps} updates in {seconds:.1f} s, {rate:,.0f} samples/s"
    return Note("info", "; ".join([words, *_messages(record)]))


def _restored(record: Mapping[str, Any]) -> Note:
    metric = metrics_text({text(record.get("metric"), 80): record.get("value")})
    return Note("good", f"the weights of epoch {count(record.get('epoch'))} are used, the best: {metric}")


def _messages(record: Mapping[str, Any]) -> list[str]:
    messages = record.get("messages")
    return [text(message, 200) for message in messages[:10]] if isinstance(messages, list) else []


def _ended(record: Mapping[str, Any]) -> Note:
    outcome, reason = text(record.get("outcome"), 40), text(record.get("reason"))
    kind = {"finished": "good", "interrupted": "warning"}.get(outcome, "bad")
    return Note(kind, f"{outcome}: {reason}" if reason else outcome)


_WRITERS: dict[str, Callable[[Mapping[str, Any]], Note]] = {
    "run_started": _started,
    "run_resumed": _resumed,
    "run_restarted": lambda record: Note("bad", f"restart {count(record.get('number'))}: {text(record.get('cause'))}"),
    "step_skipped": _skipped,
    "epoch_finished": _epoch,
    "evaluated": _evaluated,
    "model_saved": lambda record: Note("info", f"model saved: {text(record.get('path'), 300)}"),
    "training_stopped": lambda record: Note("warning", f"training stopped: {text(record.get('reason'))}"),
    "training_finished": _trained,
    "best_restored": _restored,
    "output_lost": lambda record: Note(
        "warning", f"{text(record.get('stream'), 40)} cannot be written any more: {text(record.get('reason'))}"
    ),
    "events_lost": lambda record: Note(
        "warning", f"{count(record.get('count'))} events are missing here: {text(record.get('reason'))}"
    ),
    "run_ended": _ended,
}
