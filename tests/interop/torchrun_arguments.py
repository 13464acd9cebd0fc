"""Prints its arguments."""
import sys

# In one write: lines of two ranks must not mix.
sys.stdout.write(f"{sys.argv[1:]}\n")
