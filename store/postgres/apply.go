package postgres

import (
	"context"
	"slices"
	"strings"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/ordered"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/flow"
	"github.com/holdfastq/holdfast/store/internal/roles"
	"github.com/holdfastq/holdfast/store/postgres/pgclient"
)

// applier is the part of the role store.Work that stores results.
type applier struct{ *database }

// Apply implements store.Work. One statement applies plain successes, and another one all other moves. Further
// statements start the next ordered tasks of keys and store effects. If a call needs several statements, it runs them in
// a transaction.
// Moves of the same task are applied one after another.
func (s *applier) Apply(ctx context.Context, moves []holdfast.Transition) ([]bool, error) {
	accepted := make([]bool, len(moves))
	rounds := roundsOf(moves)
	err := s.do(ctx, "apply results", func() error {
		clear(accepted)
		if len(rounds) == 1 && !ordered.Any(moves) && !roles.HasEffects(moves) {
			return s.applyRound(ctx, s.db, moves, rounds[0], accepted)
		}
		return s.inserting(ctx, func(t transaction) error {
			if err := s.applyRounds(ctx, t.tx, moves, rounds, accepted); err != nil {
				return err
			}
			return roles.StoreEffects(ctx, t, moves, accepted)
		})
	})
	if err != nil {
		return nil, err
	}
	if known := s.gateState.Load(); known == nil || known.gated {
		s.ended.AddMoved(moves)
	}
	return accepted, nil
}

// ApplyTx implements store.Work. It uses only the statement for moves of any kind, because the arguments of the others
// are in a binary form that the connection of the caller need not understand.
func (s *applier) ApplyTx(ctx context.Context, tx store.Tx, move holdfast.Transition) (bool, error) {
	moves, accepted := []holdfast.Transition{move}, []bool{false}
	err := s.applyRounds(ctx, tx, moves, []round{{indexes: []int{0}}}, accepted)
	if err == nil && accepted[0] {
		err = roles.StoreEffects(ctx, callerTx{querying{s.database, tx}}, moves, accepted)
	}
	switch {
	case pq.As(err, pqerror.TRSerializationFailure) != nil: // the task has changed since the snapshot of the transaction
		return false, nil
	case err != nil:
		return false, pgclient.Translate(ctx, "apply a result in a transaction", err)
	}
	return accepted[0], nil
}

// callerTx stores effects in a transaction of a caller.
type callerTx struct{ querying }

// Insert implements roles.Effecter.
func (t callerTx) Insert(ctx context.Context, tasks []holdfast.NewTask) (store.Inserted, error) {
	return (&inserter{t.database}).InsertTx(ctx, t.q, tasks, 0)
}

// applyRounds applies the moves in a transaction, one round after another, and then starts the next ordered tasks.
func (s *applier) applyRounds(ctx context.Context, tx store.Tx, moves []holdfast.Transition, rounds []round, accepted []bool) error {
	for _, round := range rounds {
		if err := s.applyRound(ctx, tx, moves, round, accepted); err != nil {
			return err
		}
	}
	keys, ended := ordered.Moved(moves, accepted)
	return flow.MoveKeys(ctx, querying{s.database, tx}, keys, ended)
}

// round is the input of one statement. Its moves are of different tasks. Either all of them are plain successes, or
// none is.
type round struct {
	plain   bool
	indexes []int // indexes of the moves
}

// roundsOf splits moves into rounds. The moves of one task are in different rounds, in their order.
func roundsOf(moves []holdfast.Transition) []round {
	var rounds []round
	next := make(map[holdfast.TaskID]int, len(moves)) // by task: the first round that its next move may join
	for i := range moves {
		move := &moves[i]
		plain := column.IsPlainSuccess(move)
		at := next[move.Task]
		for at < len(rounds) && rounds[at].plain != plain {
			at++
		}
		if at == len(rounds) {
			rounds = append(rounds, round{plain: plain})
		}
		rounds[at].indexes = append(rounds[at].indexes, i)
		next[move.Task] = at + 1
	}
	return rounds
}

type acceptedRow struct{ N int }

func (s *applier) applyRound(ctx context.Context, q store.Tx, moves []holdfast.Transition, r round, accepted []bool) error {
	if r.plain && column.OneClaim(moves, r.indexes) {
		return s.completeRange(ctx, q, moves, r.indexes, accepted)
	}
	var rows []acceptedRow
	var err error
	if r.plain {
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
	workers := bigints(n, func(i int) int64 { return int64(moves[indexes[i]].Worker) })
	tasks := bigints(n, func(i int) int64 { return int64(moves[indexes[i]].Task) })
	return s.all(ctx, q, rows, "complete", tasks, attempts, workers)
}

// completeRange applies uniform plain successes of different tasks.
func (s *applier) completeRange(ctx context.Context, q store.Tx, moves []holdfast.Transition, indexes []int, accepted []bool) error {
	first := &moves[indexes[0]]
	set := idRangesOf(len(indexes), func(i int) int64 { return int64(moves[indexes[i]].Task) })
	firsts, lasts, starts := set.columns()
	name, args := "complete_range_mixed", []any{set.bits, first.Attempt, int64(first.Worker), firsts, lasts, starts, len(indexes)}
	if oneGroup(moves, indexes) {
		name, args = "complete_range", append(args, first.Subqueue, first.Type, int64(first.Task)/column.CountBlock)
	}
	rows, err := q.QueryContext(ctx, s.text(name), args...)
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

// oneGroup reports whether all tasks are in one group of the counters.
func oneGroup(moves []holdfast.Transition, indexes []int) bool {
	first := &moves[indexes[0]]
	return first.Subqueue != "" && !slices.ContainsFunc(indexes, func(i int) bool {
		m := &moves[i]
		return m.Subqueue != first.Subqueue || m.Type != first.Type || m.Task/column.CountBlock != first.Task/column.CountBlock
	})
}

// moveColumns is a list of moves as columns, the arguments of the statement apply.
type moveColumns struct {
	tasks, attempts, workers                                pq.Int64Array
	events, origins, goals                                  pq.StringArray
	nextAttempts, failures, crashes, deferrals, maxAttempts pq.Int64Array
	waits                                                   pq.Int64Array
	reported                                                pq.BoolArray
	classes, errors, stacks, details                        pq.StringArray
	fingerprints, hosts                                     pq.StringArray
	statuses, marks                                         pq.Int64Array
}

func columnsOf(moves []holdfast.Transition, indexes []int) *moveColumns {
	c := &moveColumns{}
	for _, index := range indexes {
		m := &moves[index]
		origins := make([]string, len(m.From))
		for i, state := range m.From {
			origins[i] = string(state)
		}
		c.tasks, c.attempts, c.workers = append(c.tasks, int64(m.Task)), append(c.attempts, int64(m.Attempt)), append(c.workers, int64(m.Worker))
		c.events, c.origins, c.goals = append(c.events, string(m.Event)), append(c.origins, strings.Join(origins, ",")), append(c.goals, string(m.To))
		c.nextAttempts, c.maxAttempts = append(c.nextAttempts, int64(m.NextAttempt)), append(c.maxAttempts, int64(m.MaxAttempts))
		c.failures, c.crashes, c.deferrals = append(c.failures, int64(m.Failures)), append(c.crashes, int64(m.Crashes)), append(c.deferrals, int64(m.Deferrals))
		c.waits, c.reported = append(c.waits, micros(m.Wait)), append(c.reported, m.Recorded)
		c.classes, c.errors = append(c.classes, column.Text(m.Report.Class)), append(c.errors, column.Text(m.Report.Error))
		c.stacks, c.details = append(c.stacks, column.Text(m.Report.Stack)), append(c.details, column.Details(m.Report))
		host, status := "", 0
		if m.Fingerprint != "" {
			host, status = m.Report.Target()
		}
		c.fingerprints, c.hosts, c.statuses = append(c.fingerprints, m.Fingerprint), append(c.hosts, host), append(c.statuses, int64(status))
		c.marks = append(c.marks, int64(ordered.MarkOf(m)))
	}
	return c
}

func (c *moveColumns) args() []any {
	return []any{
		c.tasks, c.attempts, c.workers, c.events, c.origins, c.goals, c.nextAttempts,
		c.failures, c.crashes, c.deferrals, c.maxAttempts, c.waits,
		c.reported, c.classes, c.errors, c.stacks, c.details, c.fingerprints, c.hosts, c.statuses, c.marks,
	}
}
