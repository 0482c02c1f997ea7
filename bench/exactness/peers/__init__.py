"""One module a loader, each used as its own documentation says. A module has

TITLE            name in the table
PACKAGES         distributions whose versions are printed
WORKERS          numbers of worker processes a rank that are tried
PROCESS_GROUP    the loader asks torch.distributed for rank and world
HOW              one line for the reader: the calls, and where they are documented
prepare(data, rows)   writes the samples in its own format, once
Loader(place)    .epoch(e) → batches of [b, WIDTH]; .state() → what goes into a checkpoint; .close()
"""
