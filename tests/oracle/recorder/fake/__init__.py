"""A CUDA device that is not there: enough of one for real PyTorch to run on fake tensors."""
