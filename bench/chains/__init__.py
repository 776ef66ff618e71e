"""Chains of matmuls and convolutions: what one kernel gains over several, and whether the cost tables know it.

The workloads are those of Chimera (HPCA'23, tables IV and V), the MLPs of transformers and ConvNeXt, and the inverted
residuals of MobileNetV2. `python -m bench.chains` makes a model of each (`workloads`), asks the cost tables
(`verdict`), times the form that fusion chooses beside the other one and the peers (`measure`) and writes a table
(`report`).
"""
