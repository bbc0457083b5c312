"""The metrics: counters, gauges and histograms of the process and its devices."""
