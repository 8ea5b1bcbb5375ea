"""The CEDR pattern language as text: its syntax tree, the parser that reads it and the normal form that it is written in."""
