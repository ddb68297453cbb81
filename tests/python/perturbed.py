"""Changes parameters, so that an adapter is not a no-op."""

import torch


def perturb(model):
    """Adds noise to trained parameters, the same for every device and type; returns the model."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                noise = torch.randn(parameter.shape, generator=generator) / 8
                parameter.add_(noise.to(parameter.device, parameter.dtype))
    return model
