"""Unit tests of the benchmark: python3 -m unittest discover --start-directory benches"""
