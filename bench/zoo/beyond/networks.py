"""Recipes of the networks that the other files of this folder write in plain PyTorch."""

from __future__ import annotations

from bench.zoo.from_torch import handwritten

_CLASSIFIERS, _DENSE, _GENERATORS, _SEQUENCES = "classifiers", "dense_prediction", "generators", "sequences"

RECIPES = (
    handwritten("efficientnet_b0", _CLASSIFIERS, "EfficientNet", {"image": (1, 3, 224, 224)}),
    handwritten("efficientnet_b0_hard", _CLASSIFIERS, "EfficientNet", {"image": (1, 3, 160, 160)}, hard=True),
    handwritten("repvgg", _CLASSIFIERS, "RepVGG", {"image": (1, 3, 160, 160)}),
    handwritten("se_resnext", _CLASSIFIERS, "SEResNeXt", {"image": (1, 3, 128, 128)}),
    handwritten("densenet", _CLASSIFIERS, "DenseNet", {"image": (1, 3, 112, 112)}),
    handwritten("mlp_mixer", _CLASSIFIERS, "MLPMixer", {"image": (1, 3, 224, 224)}),
    handwritten("pointnet", _CLASSIFIERS, "PointNet", {"points": (1, 3, 1024)}),
    handwritten("conv3d", _CLASSIFIERS, "Conv3d", {"clip": (1, 3, 8, 32, 32)}),
    handwritten("unet", _DENSE, "UNet", {"image": (1, 3, 128, 128)}),
    handwritten("yolov5", _DENSE, "YOLOv5", {"image": (1, 3, 320, 320)}),
    handwritten("hrnet", _DENSE, "HRNet", {"image": (1, 3, 128, 128)}),
    handwritten("deeplab", _DENSE, "DeepLab", {"image": (1, 3, 224, 224)}),
    handwritten("super_resolution", _GENERATORS, "SuperResolution", {"image": (1, 3, 64, 64)}),
    handwritten("style_transfer", _GENERATORS, "StyleTransfer", {"image": (1, 3, 128, 128)}),
    handwritten("dcgan", _GENERATORS, "DCGAN", {"noise": (1, 100)}),
    handwritten("tcn", _SEQUENCES, "TCN", {"signal": (1, 16, 512)}),
    handwritten("wavenet", _SEQUENCES, "WaveNet", {"signal": (1, 1, 2000)}),
    handwritten("crnn", _SEQUENCES, "CRNN", {"image": (1, 1, 32, 160)}),
    handwritten("bilstm", _SEQUENCES, "BiLSTM", {"sequence": (1, 64, 128)}),
    handwritten("linear_attention", _SEQUENCES, "LinearTransformer", {"sequence": (1, 256, 128)}),
    handwritten("llama", "decoder", "Llama", {"sequence": (1, 64, 512)}),
)
