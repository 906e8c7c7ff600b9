"""What real PyTorch allocates, asked without a GPU.

Real FSDP2, FSDP1 or DDP, autograd, optimizers and model classes run as on a GPU, but their tensors
are fake: they have shapes, dtypes and storages, and no memory. So every allocation and free can be
recorded, to the byte and in the host's order, for any model on any number of ranks, in seconds.

Three things make a CPU build of torch believe in a GPU (``recorder.fake``): a library that
registers a device guard and CUDA hooks which do nothing (``shim/``), kernels that are registered
and never called, so that operators dispatch as on CUDA, and streams and ranks that only have names.
A dispatch mode watches the storages (``recorder.tracing``).

The tests do not run it; they read what it recorded, in ``tests/data``. To run it, from the root::

    make oracle                                  # the cases
    make oracle CASE=debug_ws8                   # what a case held, at each hook and peak
    make oracle CASE="debug_ws8 ws=6 ac=full"    # the same case, changed
    make oracle CASE="debug_ws8 --events"        # every allocation and free
    make oracle DO="saved 7b_ws8_mb1_none"       # what a block keeps for backward
    make oracle DO="record 'wrap_*'"             # record cases, under out/oracle
    make oracle DO="record --all"                # all of them: half an hour
    make oracle DO=merge                         # take what was recorded into tests/data
    make oracle DO=whole                         # trace small models whole, into tests/data

A new case is a line in ``recorder.cases``. When PyTorch moves: a new version in requirements.txt,
``record --all``, and look at what it calls CHANGED before you merge.

What is not seen: memory that a kernel's launcher takes and gives back inside one call (cuBLAS
workspaces, the accumulator of flash attention's backward), and the caching allocator's own rounding
of blocks past 1 MiB.
"""
