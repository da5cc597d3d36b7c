-- +goose Up

-- Tasks move between stores by an export and an import now. A file that still has its mark must not run tasks that are
-- on a server as well, so it is refused here: the check has a name that says why, and it fails for every mark.
create table marks (
  mark text constraint "the tasks of this file are on a server or on their way there: use that server, or finish or undo the move with the release that began it" check (mark is null)
) strict;
insert into marks (mark) select transfer from exports;
drop table marks;
drop table exports;

-- +goose Down
create table exports (
  one         integer primary key check (one = 1),
  transfer    text not null,
  origin      text not null,
  target      text not null,
  destination text not null,
  begun_at    integer not null,
  finished_at integer
) strict;
