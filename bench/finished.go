package main

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
)

// keptFor is over how long a time kept tasks were finished: a little less than they are kept by default, so that none is
// deleted during a measurement.
const keptFor = "6 days"

// keeping is a store in which finished tasks are kept.
type keeping struct {
	condition string
	place     place
	system    system
	tasks     int
	newest    int64 // id; what is above came later
}

// The conditions.
const noneKept = "no finished tasks"

func (s *scaling) manyKept() string { return human(float64(s.finished)) + " finished tasks" }

// measureFinished has two stores take turns, which have the same history but for the finished tasks that one of them keeps.
func (s *scaling) measureFinished(ctx context.Context) error {
	stores := []*keeping{{condition: noneKept, place: emptyPlace, system: empty}, {condition: s.manyKept(), place: fullPlace, system: full, tasks: s.finished}}
	for _, k := range stores {
		fmt.Fprintf(os.Stderr, "storing %s\n", k.condition)
		if err := k.fill(ctx, s); err != nil {
			return fmt.Errorf("store finished tasks: %w", err)
		}
	}
	for round := range s.rounds {
		for _, k := range order(stores, round) {
			st := stepOf("steady")
			st.fresh = false
			f, err := take[figures](ctx, k.system, st, scale{Options: s.Options})
			if err != nil {
				return err
			}
			for _, measure := range []string{steady, cpu} {
				s.see(round, k.condition, measure, f[measure])
			}
			if err := k.restore(ctx, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// fill makes the store anew. A worker runs a task in it, and what that leaves behind is copied, but for the times.
func (k *keeping) fill(ctx context.Context, s *scaling) error {
	one := scale{Options: s.Options, Backlog: 1}
	for _, name := range []string{"fill", "drain"} {
		if _, err := take[figures](ctx, k.system, stepOf(name), one); err != nil {
			return err
		}
	}
	conn, err := pgx.Connect(ctx, os.Getenv(databaseURL))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	tag, err := conn.Exec(ctx, fmt.Sprintf(copyFinished, k.place.tasks(), keptFor), k.tasks)
	if err != nil {
		return err
	}
	if made := int(tag.RowsAffected()); made != k.tasks {
		return fmt.Errorf("%d rows were copied, not %d: the task that was run is not done", made, k.tasks)
	}
	if _, err := conn.Exec(ctx, "delete from "+k.place.tasks()+" where id = (select min(id) from "+k.place.tasks()+")"); err != nil {
		return err
	}
	if err := conn.QueryRow(ctx, "select coalesce(max(id), 0) from "+k.place.tasks()).Scan(&k.newest); err != nil {
		return err
	}
	return k.system.analyze(ctx)
}

// copyFinished wants a table with a finished task, an interval, and as $1 a number of rows. They are the older the lower
// their ids, as if they had come one after the other.
const copyFinished = `
insert into %[1]s (
  created_at, next_run_at, started_at, finished_at,
  max_attempts, attempt, failures, crashes, deferrals, type, lane, unique_key, payload, state, run_id, due_at, ticketed_at,
  dead_at, again, last_error, parked
)
select
  at, at + (next_run_at - created_at), at + (started_at - created_at), at + (finished_at - created_at),
  max_attempts, attempt, failures, crashes, deferrals, type, lane, unique_key, payload, state, run_id, due_at, ticketed_at,
  dead_at, again, last_error, parked
from (select * from %[1]s where state = 'done') ran,
  lateral (select now() - interval '%[2]s' * (1 - n / $1::float8) as at from generate_series(1, $1::bigint) n) times`

// restore brings the store back to what it kept before a steady state: that has left tasks that wait, and finished ones.
func (k *keeping) restore(ctx context.Context, s *scaling) error {
	conn, err := pgx.Connect(ctx, os.Getenv(databaseURL))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var waiting int
	if err := conn.QueryRow(ctx, "select count(*) from "+k.place.tasks()+" where id > $1 and state <> 'done'", k.newest).Scan(&waiting); err != nil {
		return err
	}
	if waiting > 0 {
		if _, err := take[figures](ctx, k.system, stepOf("drain"), scale{Options: s.Options, Backlog: waiting}); err != nil {
			return fmt.Errorf("run what is left: %w", err)
		}
	}
	if _, err := conn.Exec(ctx, "delete from "+k.place.tasks()+" where id > $1", k.newest); err != nil {
		return err
	}
	return k.system.analyze(ctx)
}

func (s *scaling) finishedSection() string {
	c := contrast{"the store keeps", []string{noneKept, s.manyKept()}, []goal{{measure: steady}, {measure: cpu, most: 1.10}}}
	return fmt.Sprintf("What a task costs when many finished ones are kept: a steady state is held for %s in two stores that differ in nothing but rows as "+
		"finished tasks leave them, of the last %s. What it has added is deleted before the next. The processor time is that of the process and of all servers.\n\n%s",
		s.For, keptFor, c.table(s.found))
}
