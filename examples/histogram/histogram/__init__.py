"""`histogram`: how often each value occurs, counted on the GPU."""

from histogram.op import histogram as histogram
