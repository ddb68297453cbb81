"""python -m dorajit.swift prints the path of ms-swift's plug-in file, for its option --external_plugins."""

import pathlib

print(pathlib.Path(__file__).with_name("dorajit_plugin.py"))
