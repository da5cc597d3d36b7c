package sqlite

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/ordered"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/flow"
	"github.com/holdfastq/holdfast/store/internal/roles"
)

// applier is the part of the role store.Work that stores results.
type applier struct{ *database }

// Apply implements store.Work. One statement applies plain successes. Apply then makes all other transitions, one after
// another in their order. At the end it starts the next ordered tasks.
func (s *applier) Apply(ctx context.Context, moves []holdfast.Transition) ([]bool, error) {
	accepted := make([]bool, len(moves))
	if len(moves) == 0 {
		return accepted, nil
	}
	try := func(succeed completion) error {
		return s.write(ctx, "apply results", func(ctx context.Context, tx *transaction) error {
			clear(accepted)
			if err := applyAll(ctx, clocked{tx, tx.now}, succeed, moves, accepted); err != nil {
				return err
			}
			return roles.StoreEffects(ctx, effecter{querying{tx, tx.now}}, moves, accepted)
		})
	}
	err := try(completeUniform)
	if errors.Is(err, errRefused) {
		err = try(complete)
	}
	if err != nil {
		return nil, err
	}
	s.ended.AddMoved(moves)
	return accepted, nil
}

// ApplyTx implements store.Work; see InsertTx about tx.
func (s *applier) ApplyTx(ctx context.Context, tx store.Tx, move holdfast.Transition) (bool, error) {
	const operation = "apply a result in a transaction"
	moves, accepted := []holdfast.Transition{move}, []bool{false}
	q, now := callerTx{tx, s.writer.texts}, s.now().UnixMicro()
	err := s.checkFile(ctx)
	if err == nil {
		err = applyAll(ctx, clocked{q, now}, complete, moves, accepted)
	}
	if err == nil {
		err = roles.StoreEffects(ctx, effecter{querying{q, now}}, moves, accepted)
	}
	if err != nil {
		return false, s.callerError(ctx, operation, err)
	}
	return accepted[0], nil
}

// effecter stores effects in a transaction.
type effecter struct{ querying }

// Insert implements roles.Effecter.
func (e effecter) Insert(ctx context.Context, tasks []holdfast.NewTask) (store.Inserted, error) {
	return insert(ctx, e.q, tasks, e.now, 0)
}

// applyAll applies the moves in a transaction, the plain successes with succeed.
func applyAll(ctx context.Context, tx clocked, succeed completion, moves []holdfast.Transition, accepted []bool) error {
	plain, others := partition(moves)
	if len(plain) > 0 {
		if err := succeed(ctx, tx, moves, plain, accepted); err != nil {
			return err
		}
	}
	for _, i := range others {
		var err error
		if accepted[i], err = apply(ctx, tx, &moves[i]); err != nil {
			return err
		}
	}
	keys, ended := ordered.Moved(moves, accepted)
	return flow.MoveKeys(ctx, querying{tx.querier, tx.now}, keys, ended)
}

// partition returns the indexes of the transitions in two lists. plain has the plain successes whose tasks have no
// other transition, and others has the rest.
func partition(moves []holdfast.Transition) (plain, others []int) {
	times := make(map[holdfast.TaskID]int, len(moves))
	for i := range moves {
		times[moves[i].Task]++
	}
	for i := range moves {
		if column.IsPlainSuccess(&moves[i]) && times[moves[i].Task] == 1 {
			plain = append(plain, i)
		} else {
			others = append(others, i)
		}
	}
	return plain, others
}

// completion applies the plain successes at the indexes. There is at least one.
type completion func(ctx context.Context, tx clocked, moves []holdfast.Transition, indexes []int, accepted []bool) error

// errRefused means that completeUniform could not apply every result.
var errRefused = errors.New("some results were refused")

// completeUniform is complete with a faster statement for results of one worker and one attempt number, which are nearly
// all. It does not read which results the statement has applied, and returns errRefused unless it has applied all.
func completeUniform(ctx context.Context, tx clocked, moves []holdfast.Transition, indexes []int, accepted []bool) error {
	uncounted := func(i int) bool { return moves[i].Subqueue == "" }
	if !column.OneClaim(moves, indexes) || slices.ContainsFunc(indexes, uncounted) {
		return complete(ctx, tx, moves, indexes, accepted)
	}
	first, ids, counts := &moves[indexes[0]], make([]holdfast.TaskID, len(indexes)), make(tally)
	for i, index := range indexes {
		move := &moves[index]
		ids[i], accepted[index] = move.Task, true
		counts.add(countedRow{int64(move.Task), move.Subqueue, move.Type}, string(holdfast.Done), 1)
	}
	n, err := tx.exec(ctx, "complete_uniform", numbers(ids), tx.now, first.Attempt, int64(first.Worker))
	if err == nil && n < len(indexes) {
		err = errRefused
	}
	if err != nil {
		return err
	}
	return counts.store(ctx, tx)
}

// complete applies plain successes of several workers or attempt numbers.
func complete(ctx context.Context, tx clocked, moves []holdfast.Transition, indexes []int, accepted []bool) error {
	list := make([][]int64, len(indexes))
	byTask := make(map[int64]int, len(indexes))
	for i, index := range indexes {
		move := &moves[index]
		list[i] = []int64{int64(move.Task), int64(move.Attempt), int64(move.Worker)}
		byTask[int64(move.Task)] = index
	}
	done, err := all[countedRow](ctx, tx, "complete", tuples(list), tx.now)
	if err != nil {
		return err
	}
	counts := make(tally)
	for _, row := range done {
		accepted[byTask[row.ID]] = true
		counts.add(row, string(holdfast.Done), 1)
	}
	return counts.store(ctx, tx)
}

// apply applies one transition, if its task is still in the state for which the caller computed the transition.
func apply(ctx context.Context, tx clocked, m *holdfast.Transition) (bool, error) {
	var origins strings.Builder
	for _, state := range m.From {
		origins.WriteString("," + string(state))
	}
	expected := []any{int64(m.Task), m.Attempt, int64(m.Worker), origins.String() + ","}
	class, text := column.Text(m.Report.Class), column.Text(m.Report.Error)
	if m.Recorded {
		args := append(expected[:4:4], string(m.Event), tx.now, class, text, column.Text(m.Report.Stack), column.Details(m.Report))
		if _, err := tx.exec(ctx, "apply_record", args...); err != nil {
			return false, err
		}
	}
	if m.Event == holdfast.EventCancel {
		if _, err := tx.exec(ctx, "apply_notify", append(expected[:4:4], tx.now)...); err != nil {
			return false, err
		}
	}
	if slices.Contains(m.From, holdfast.Ready) {
		if _, err := tx.exec(ctx, "apply_unblock", expected...); err != nil {
			return false, err
		}
	}
	waits := m.OrderedKey != "" && m.Event == holdfast.EventRequeue
	if m.OrderedKey != "" && slices.Contains(m.From, holdfast.Ready) {
		if _, err := tx.exec(ctx, "apply_leave", append(expected[:4:4], m.OrderedKey)...); err != nil {
			return false, err
		}
	}
	if waits {
		if _, err := tx.exec(ctx, "apply_wait", expected...); err != nil {
			return false, err
		}
	}
	if slices.Contains(m.From, holdfast.Ready) && m.To != holdfast.Ready {
		if _, err := tx.exec(ctx, "apply_leave_topic", expected...); err != nil {
			return false, err
		}
	}
	if m.Event == holdfast.EventRequeue {
		if _, err := tx.exec(ctx, "apply_topic", expected...); err != nil {
			return false, err
		}
	}
	if m.Fingerprint != "" {
		host, status := m.Report.Target()
		if _, err := tx.exec(ctx, "apply_death", append(expected[:4:4], tx.now, m.Fingerprint, class, host, status)...); err != nil {
			return false, err
		}
	}
	if slices.Contains(m.From, holdfast.Dead) {
		if _, err := tx.exec(ctx, "apply_revival", expected...); err != nil {
			return false, err
		}
	}
	if m.To.Final() || slices.ContainsFunc(m.From, holdfast.State.Final) {
		if _, err := tx.exec(ctx, "apply_count", append(expected[:4:4], string(m.To))...); err != nil {
			return false, err
		}
	}
	requeued := m.Event == holdfast.EventCrash || m.Event == holdfast.EventInterrupt
	args := append(expected[:4:4], tx.now, string(m.To), tx.now+micros(m.Wait), m.NextAttempt,
		m.Failures, m.Crashes, m.Deferrals, m.MaxAttempts, text, requeued, int(ordered.MarkOf(m)), waits)
	n, err := tx.exec(ctx, "apply", args...)
	return n == 1, err
}
