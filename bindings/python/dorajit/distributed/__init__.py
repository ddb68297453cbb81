"""Parameters that lie on several processes: DTensors, FSDP, DeepSpeed ZeRO; docs/sharding.md.

Nothing here imports torch.distributed or DeepSpeed by itself: a process whose tensors are none of
theirs does not pay for them.
"""
