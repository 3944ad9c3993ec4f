"""Compiled autograd: in a region that asks for it, a backward runs as one compiled graph, whatever graphs the forward was cut into.

    loss.backward()  ->  the autograd graph is walked (`_exec.backward_walk`)           SumBackward0, CompiledBackward, ...
                     ->  its structure is written as a Python function (`program`)     one call a node, hooks between them
                     ->  that function is compiled like any other                       hooks inlined, accumulation as effects

A later backward of the same structure hands what its nodes keep to the compiled function. What cannot be told apart by structure,
or does not run on plain CPU tensors, is left to eager's engine, counted by name.
"""
