"""Parameters sharded over several processes: DTensors, FSDP, DeepSpeed ZeRO; docs/sharding.md.

This package does not import torch.distributed or DeepSpeed unless the process uses them.
"""
