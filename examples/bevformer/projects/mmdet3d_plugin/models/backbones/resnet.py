"""A small residual network for images."""

from __future__ import annotations

from torch import Tensor, nn


def _conv_norm(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Sequential:
    # GroupNorm: six images are too few for batch statistics, and it is the same in eval mode, in
    # which the previous frames are encoded.
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False),
        nn.GroupNorm(8, outputs),
    )


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _conv_norm(inputs, outputs, 3, stride),
            nn.ReLU(inplace=True),
            _conv_norm(outputs, outputs, 3, 1),
        )
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else _conv_norm(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return (self.body(x) + self.shortcut(x)).relu()


class ResNet(nn.Module):
    """A strided stem and four stages of one block each, at strides 4, 8, 16 and 32.

    Args:
        channels: channels of the four stages, multiples of 8.
        out_indices: stages whose features are returned.
    """

    def __init__(
        self,
        channels: tuple[int, ...] = (32, 64, 128, 256),
        out_indices: tuple[int, ...] = (2,),
    ) -> None:
        super().__init__()
        self.out_indices = out_indices
        self.stem = nn.Sequential(_conv_norm(3, channels[0], 7, 2), nn.ReLU(inplace=True))
        inputs = (channels[0], *channels)
        self.stages = nn.ModuleList(
            BasicBlock(inputs[stage], channels[stage], stride=2)
            for stage in range(max(out_indices) + 1)
        )

    def forward(self, x: Tensor) -> list[Tensor]:
        """(N, 3, H, W) to one (N, C, H / stride, W / stride) per output stage."""
        features = []
        x = self.stem(x)
        for index, stage in enumerate(self.stages):
            x = stage(x)
            if index in self.out_indices:
                features.append(x)
        return features
