-- +goose Up

-- Figures for charts: one row per queue, figure and minute. queue is '' for the sum of all queues. Rows are deleted
-- after 25 hours. Only a chart reads them.
create table figures (
  queue  text not null,
  figure text not null,
  minute timestamptz not null,
  n      bigint not null,
  primary key (queue, figure, minute)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- The context of the trace to which the task belongs, as in the W3C header traceparent, and after a space the header
-- tracestate. Null means that the task was stored without tracing, and takes no space. It never changes.
alter table tasks add column trace text;

-- +goose Down
alter table tasks drop column trace;
drop table figures;
