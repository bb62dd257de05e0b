"""Files of results and artifacts: paths, JSON, checksums, locks and the store."""
