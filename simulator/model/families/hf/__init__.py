"""Decoders as Hugging Face transformers 5 writes them: one file a family of modules.

What is kept differs from torchtitan's by the fp32 copies of the norms, the rotary tables in the
activations' dtype, and by all that ``forward``'s locals hold until the model returns.
"""
