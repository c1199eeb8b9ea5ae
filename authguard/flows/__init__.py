"""One story a file: what happens between a request and its answer, with everything passed in."""
