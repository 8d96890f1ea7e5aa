"""The sections of `thaw plan`: what is computed, as tables, and as charts."""
