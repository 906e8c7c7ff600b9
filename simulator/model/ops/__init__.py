"""Autograd rules, one file a family of ops.

Each function appends ops to a :class:`~simulator.model.builder.GraphBuilder` and says what
PyTorch's node keeps and does in backward (tools/autograd/derivatives.yaml in PyTorch's sources).
Gradients are listed in the order in which the node allocates them.
"""
