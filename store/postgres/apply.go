package postgres

import (
	"context"
	"slices"
	"strings"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
)

// applier is the part of the role store.Work that takes results.
type applier struct{ *database }

// Apply implements store.Work. Successes go a short way, everything else a general
// one; a call that has both is a transaction. Moves of the same task are applied one after another.
func (s *applier) Apply(ctx context.Context, moves []holdfast.Transition) ([]bool, error) {
	accepted := make([]bool, len(moves))
	rounds := roundsOf(moves)
	err := s.do(ctx, "apply results", func() error {
		clear(accepted)
		if len(rounds) == 1 {
			return s.applyRound(ctx, s.db, moves, rounds[0], accepted)
		}
		return s.tx(ctx, func(tx *sqlx.Tx) error {
			for _, round := range rounds {
				if err := s.applyRound(ctx, tx, moves, round, accepted); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return accepted, nil
}

// round is one statement: the indexes of moves of different tasks that go the same way.
type round struct {
	short   bool
	indexes []int
}

func roundsOf(moves []holdfast.Transition) []round {
	var rounds []round
	times := make(map[holdfast.TaskID]int, len(moves)) // in how many rounds the task is
	for i := range moves {
		move := &moves[i]
		short := column.IsPlainSuccess(move)
		at := times[move.Task]
		for at < len(rounds) && rounds[at].short != short {
			at++
		}
		if at == len(rounds) {
			rounds = append(rounds, round{short: short})
		}
		rounds[at].indexes = append(rounds[at].indexes, i)
		times[move.Task] = at + 1
	}
	return rounds
}

type acceptedRow struct{ N int }

func (s *applier) applyRound(ctx context.Context, q store.Tx, moves []holdfast.Transition, r round, accepted []bool) error {
	if r.short && uniform(moves, r.indexes) {
		return s.completeNear(ctx, q, moves, r.indexes, accepted)
	}
	var rows []acceptedRow
	var err error
	if r.short {
		err = s.complete(ctx, q, &rows, moves, r.indexes)
	} else {
		columns := columnsOf(moves, r.indexes)
		err = s.all(ctx, q, &rows, "apply", columns.args()...)
	}
	for _, row := range rows {
		accepted[r.indexes[row.N-1]] = true
	}
	return err
}

func (s *applier) complete(ctx context.Context, q store.Tx, rows *[]acceptedRow, moves []holdfast.Transition, indexes []int) error {
	n := len(indexes)
	attempts := integers(n, func(i int) int { return moves[indexes[i]].Attempt })
	runs := bigints(n, func(i int) int64 { return int64(moves[indexes[i]].Run) })
	tasks := bigints(n, func(i int) int64 { return int64(moves[indexes[i]].Task) })
	return s.all(ctx, q, rows, "complete", tasks, attempts, runs)
}

// uniform reports whether the moves are of one run and one attempt number. The moves of a worker nearly always are.
func uniform(moves []holdfast.Transition, indexes []int) bool {
	first := &moves[indexes[0]]
	return !slices.ContainsFunc(indexes, func(i int) bool { return moves[i].Run != first.Run || moves[i].Attempt != first.Attempt })
}

// completeNear applies plain successes of different tasks that are uniform.
func (s *applier) completeNear(ctx context.Context, q store.Tx, moves []holdfast.Transition, indexes []int, accepted []bool) error {
	first := &moves[indexes[0]]
	set := nearby(len(indexes), func(i int) int64 { return int64(moves[indexes[i]].Task) })
	firsts, lasts, starts := set.columns()
	rows, err := q.QueryContext(ctx, s.text("complete_near"), set.bits, first.Attempt, int64(first.Run), firsts, lasts, starts, len(indexes))
	if err != nil {
		return err
	}
	defer rows.Close()
	var n int
	var tasks pq.Int64Array
	for rows.Next() {
		if err := rows.Scan(&n, &tasks); err != nil {
			return err
		}
	}
	for _, i := range indexes {
		accepted[i] = n == len(indexes) || slices.Contains(tasks, int64(moves[i].Task))
	}
	return rows.Err()
}

// moveColumns are moves as sql/apply.sql takes them.
type moveColumns struct {
	tasks, attempts, runs                                   pq.Int64Array
	events, origins, goals                                  pq.StringArray
	nextAttempts, failures, crashes, deferrals, maxAttempts pq.Int64Array
	waits                                                   pq.Int64Array
	reported                                                pq.BoolArray
	classes, errors, stacks, details                        pq.StringArray
}

func columnsOf(moves []holdfast.Transition, indexes []int) *moveColumns {
	c := &moveColumns{}
	for _, index := range indexes {
		m := &moves[index]
		origins := make([]string, len(m.From))
		for i, state := range m.From {
			origins[i] = string(state)
		}
		c.tasks, c.attempts, c.runs = append(c.tasks, int64(m.Task)), append(c.attempts, int64(m.Attempt)), append(c.runs, int64(m.Run))
		c.events, c.origins, c.goals = append(c.events, string(m.Event)), append(c.origins, strings.Join(origins, ",")), append(c.goals, string(m.To))
		c.nextAttempts, c.maxAttempts = append(c.nextAttempts, int64(m.NextAttempt)), append(c.maxAttempts, int64(m.MaxAttempts))
		c.failures, c.crashes, c.deferrals = append(c.failures, int64(m.Failures)), append(c.crashes, int64(m.Crashes)), append(c.deferrals, int64(m.Deferrals))
		c.waits, c.reported = append(c.waits, micros(m.Wait)), append(c.reported, column.HasReport(m.Report))
		c.classes, c.errors = append(c.classes, column.Text(m.Report.Class)), append(c.errors, column.Text(m.Report.Error))
		c.stacks, c.details = append(c.stacks, column.Text(m.Report.Stack)), append(c.details, column.Details(m.Report))
	}
	return c
}

func (c *moveColumns) args() []any {
	return []any{
		c.tasks, c.attempts, c.runs, c.events, c.origins, c.goals, c.nextAttempts,
		c.failures, c.crashes, c.deferrals, c.maxAttempts, c.waits,
		c.reported, c.classes, c.errors, c.stacks, c.details,
	}
}
