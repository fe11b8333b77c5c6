"""Studies: what is compared, cell by cell, where that is done, and what it says about claims; nothing is drawn here."""
