"""The functions and results at the top of the package: `unmask.pretrain`, `finetune`, `train` and `evaluate`."""
