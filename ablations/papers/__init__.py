"""The tables and figures of the papers, a file each: ``tune-calib reproduce PAPER/TABLE``."""
