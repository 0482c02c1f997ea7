"""The Python half of `athanor bench train`: rank processes, contenders, test data.

Started by the command line (src/bench/); nothing here is part of the client's public interface.
"""
