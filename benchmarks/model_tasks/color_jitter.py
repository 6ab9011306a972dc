"""Brightness, contrast and saturation of pictures, clamped after each, as augmentations do."""

import torch
from torch import nn

PICTURES = 16
SIDE = 256


class Model(nn.Module):
    def __init__(self, brightness, contrast, saturation):
        super().__init__()
        self.brightness = brightness
        self.contrast = contrast
        self.saturation = saturation
        self.register_buffer("weights", torch.tensor([0.2989, 0.587, 0.114]).view(1, 3, 1, 1))

    def forward(self, pictures):
        x = (pictures * self.brightness).clamp(0.0, 1.0)
        gray = (x * self.weights).sum(dim=1, keepdim=True)
        mean = gray.mean(dim=(1, 2, 3), keepdim=True)
        x = (self.contrast * x + (1.0 - self.contrast) * mean).clamp(0.0, 1.0)
        gray = (x * self.weights).sum(dim=1, keepdim=True)
        return (self.saturation * x + (1.0 - self.saturation) * gray).clamp(0.0, 1.0)


def get_inputs():
    return [torch.rand(PICTURES, 3, SIDE, SIDE)]


def get_init_inputs():
    return [1.2, 1.4, 1.6]
