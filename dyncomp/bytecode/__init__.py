"""Facts about CPython's bytecode (3.11, 3.12, 3.13) and tools to read, analyse and write it. Needs no torch.

decode       code object -> [Instruction]        raw, linked
canonical    code object -> CanonicalCode        one view of all versions, for the interpreter
depth, liveness                                  analyses over raw instructions
spell        abstract operations -> [Instruction] of the running version
assemble     [Instruction] -> code object
opcodes, stack_effect                            the tables behind them
"""
