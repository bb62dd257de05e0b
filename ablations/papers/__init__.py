"""The tables and figures of the papers, one file each: ``tune-calib reproduce PAPER/TABLE``."""
