package main

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
)

// retention is the age of the oldest finished task, as a PostgreSQL interval. It is shorter than the default of
// janitor.keep_done, so that no task is deleted during a measurement.
const retention = "6 days"

// retainedStore is a store that keeps a number of finished tasks.
type retainedStore struct {
	condition string
	place     place
	system    system
	tasks     int
	newest    int64 // highest id of these tasks; tasks of a measurement have higher ids
}

// noFinished and manyFinished are the names of the two conditions.
const noFinished = "no finished tasks"

func (s *scaleBench) manyFinished() string {
	return formatNumber(float64(s.finished)) + " finished tasks"
}

// measureFinished measures two stores alternately. They have the same history, except that one of them keeps finished
// tasks.
func (s *scaleBench) measureFinished(ctx context.Context) error {
	stores := []*retainedStore{{condition: noFinished, place: emptyPlace, system: empty}, {condition: s.manyFinished(), place: fullPlace, system: full, tasks: s.finished}}
	for _, k := range stores {
		fmt.Fprintf(os.Stderr, "storing %s\n", k.condition)
		if err := k.fill(ctx, s); err != nil {
			return fmt.Errorf("store finished tasks: %w", err)
		}
	}
	for round := range s.rounds {
		for _, k := range order(stores, round) {
			st := stepOf("steady")
			st.startsEmpty = false
			f, err := runStep[figures](ctx, k.system, st, scale{Options: s.Options})
			if err != nil {
				return err
			}
			for _, measure := range []string{steady, cpu} {
				s.record(round, k.condition, measure, f[measure])
			}
			if err := k.restore(ctx, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// fill creates the store. A worker runs one task in it, and fill copies the row of that task with other times.
func (k *retainedStore) fill(ctx context.Context, s *scaleBench) error {
	one := scale{Options: s.Options, Backlog: 1}
	for _, name := range []string{"fill", "drain"} {
		if _, err := runStep[figures](ctx, k.system, stepOf(name), one); err != nil {
			return err
		}
	}
	conn, err := pgx.Connect(ctx, os.Getenv(databaseURL))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	tag, err := conn.Exec(ctx, fmt.Sprintf(copyFinished, k.place.tasks(), retention), k.tasks)
	if err != nil {
		return err
	}
	if made := int(tag.RowsAffected()); made != k.tasks {
		return fmt.Errorf("%d rows were copied instead of %d: the first task is not done", made, k.tasks)
	}
	if _, err := conn.Exec(ctx, "delete from "+k.place.tasks()+" where id = (select min(id) from "+k.place.tasks()+")"); err != nil {
		return err
	}
	if err := conn.QueryRow(ctx, "select coalesce(max(id), 0) from "+k.place.tasks()).Scan(&k.newest); err != nil {
		return err
	}
	// The search for lost tickets passes each task within minutes, and these have ended days ago. Until the search has
	// passed them, each check for tasks that break an invariant would read all of them.
	if _, err := conn.Exec(ctx, "update "+k.place.schema+".ticket_scan set through = $1", k.newest); err != nil {
		return err
	}
	return k.system.analyze(ctx)
}

// copyFinished copies the row of the finished task. Its parameters are a table, an interval, and as $1 the number of
// rows. The finish times are spread over the interval in the order of the ids.
const copyFinished = `
insert into %[1]s (
  created_at, next_run_at, started_at, finished_at,
  max_attempts, attempt, failures, crashes, deferrals, type, queue, unique_key, payload, state, worker_id, due_at, ticketed_at,
  dead_at, requeued, last_error, parked
)
select
  at, at + (next_run_at - created_at), at + (started_at - created_at), at + (finished_at - created_at),
  max_attempts, attempt, failures, crashes, deferrals, type, queue, unique_key, payload, state, worker_id, due_at, ticketed_at,
  dead_at, requeued, last_error, parked
from (select * from %[1]s where state = 'done') ran,
  lateral (select now() - interval '%[2]s' * (1 - n / $1::float8) as at from generate_series(1, $1::bigint) n) times`

// restore runs the tasks that a measurement has left ready, and deletes all tasks of the measurement.
func (k *retainedStore) restore(ctx context.Context, s *scaleBench) error {
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
		if _, err := runStep[figures](ctx, k.system, stepOf("drain"), scale{Options: s.Options, Backlog: waiting}); err != nil {
			return fmt.Errorf("run the remaining tasks: %w", err)
		}
	}
	if _, err := conn.Exec(ctx, "delete from "+k.place.tasks()+" where id > $1", k.newest); err != nil {
		return err
	}
	return k.system.analyze(ctx)
}

func (s *scaleBench) finishedSection() string {
	c := comparison{"the store keeps", []string{noFinished, s.manyFinished()}, []goal{{measure: steady}, {measure: cpu, most: 1.10}}}
	return fmt.Sprintf("What a task costs when the store keeps many finished tasks. A steady state is measured for %s in each of two stores. They differ only in "+
		"the rows of tasks that finished in the last %s. The tasks of a measurement are deleted before the next measurement. The processor time is that "+
		"of the process and of all servers.\n\n%s",
		s.For, retention, c.table(s.found))
}
