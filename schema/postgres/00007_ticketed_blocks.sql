-- +goose Up

-- The blocks of ids in which a task may be ticketed: it is ready, and the store takes it to have a ticket or a receipt.
-- The look for lost tickets reads only these. A block has 5,000 ids. A block is listed here if a task in it may be
-- ticketed and has an id up to ticket_scan.through. Above that, any task may be ticketed.
create table ticketed_blocks (block bigint primary key);

-- The progress of the look. It has one row.
create table ticket_scan (
  one_row  boolean primary key default true check (one_row),
  through  bigint not null default 0,           -- see ticketed_blocks
  resume   bigint not null default 0,           -- the block at which the next call goes on
  begun_at timestamptz not null default now()   -- when through was 0
) with (fillfactor = 50);

insert into ticket_scan default values;

-- +goose Down
drop table ticket_scan, ticketed_blocks;
