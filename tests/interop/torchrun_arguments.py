"""Prints its arguments."""
import sys

print(sys.argv[1:], flush=True)
