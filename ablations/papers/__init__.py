"""The tables and figures of papers, one file each, for ``tune-calib reproduce PAPER/TABLE``."""
