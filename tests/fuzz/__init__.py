"""Random training programs beside eager: `python -m tests.fuzz.training FROM TO`."""
