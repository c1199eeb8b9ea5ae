"""Measurements, side by side in one run and told as ratios; never asserted on a clock."""
