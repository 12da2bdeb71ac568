from ._types import InsertStateBlocks

HEADER_SHA256: str
compiler: str
insert_state_blocks: InsertStateBlocks
