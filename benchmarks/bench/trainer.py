"""The peer in training: `transformers.Trainer` with the optimiser of unmask, its steps timed."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bench.common import Settings
from bench.stopwatch import Stopwatch

if TYPE_CHECKING:
    import torch

LOG_EVERY = 10  # steps
BY_LENGTH = {"train_sampling_strategy": "group_by_length"}


def arguments(out: str, settings: Settings, **more: Any) -> Any:
    """`TrainingArguments` of a run into `out`.

    settings  precision, lr and seed; device, if it is not the CPU
    more      further arguments of `TrainingArguments`
    """
    import transformers

    return transformers.TrainingArguments(
        output_dir=out,
        learning_rate=settings["lr"],
        lr_scheduler_type="linear",
        weight_decay=0.01,
        adam_epsilon=1e-8,
        max_grad_norm=1.0,
        optim="adamw_torch_fused",
        bf16=settings["precision"] == "bf16",
        use_cpu=settings.get("device", "cpu") == "cpu",
        seed=settings["seed"],
        dataloader_pin_memory=settings.get("device", "cpu") != "cpu",
        logging_steps=LOG_EVERY,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        **more,
    )


def train(
    model: torch.nn.Module,
    rows: Sequence[Any],
    collator: Any,
    settings: Settings,
    *,
    steps: int,
    warmup: int,
    rows_at_once: int,
    callbacks: Sequence[Any] = (),
    **more: Any,
) -> tuple[Stopwatch, list[float]]:
    """Train for `steps` steps with linear warm-up and decay; returns their times and the logged losses.

    settings, more  see `arguments`
    callbacks       of `transformers`, called at every step
    """
    import transformers

    watch = Stopwatch()

    def count(module: torch.nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        mask = kwargs["attention_mask"]
        watch.count(int(mask.sum()), mask.numel(), int(mask.sum(1).square().sum()))

    class Timed(transformers.TrainerCallback):
        def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
            watch.next_step()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            watch.next_step()

    hook = model.register_forward_pre_hook(count, with_kwargs=True)
    with tempfile.TemporaryDirectory(prefix="unmask-run-") as out:
        chosen = arguments(
            out, settings, max_steps=steps, per_device_train_batch_size=rows_at_once, warmup_steps=warmup, **more
        )
        trainer = transformers.Trainer(
            model=model, args=chosen, train_dataset=rows, data_collator=collator, callbacks=[Timed(), *callbacks]
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    hook.remove()
    return watch, [row["loss"] for row in trainer.state.log_history if "loss" in row]
