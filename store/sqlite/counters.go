package sqlite

import (
	"context"

	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/roles"
)

// counters is the role store.Counters.
type counters struct{ roles.Counters }

// FoldCounts implements store.Counters. Only one transaction writes at a time, so each transaction changes the numbers.
func (s *counters) FoldCounts(context.Context, int) (int, error) { return 0, nil }

// allStates is the state under which the number of tasks in any state is stored.
const allStates = "all"

// countedRow is a task whose state has changed.
type countedRow struct {
	ID          int64
	Queue, Type string
}

// tally collects changes of the stored numbers of tasks.
type tally map[number]int64

// number identifies a number. id is the id of a task of the block.
type number struct {
	id                 int64
	queue, kind, state string
}

// add adds n tasks like the given one to a state.
func (t tally) add(task countedRow, state string, n int64) {
	t[number{task.ID / column.CountBlock * column.CountBlock, task.Queue, task.Type, state}] += n
}

func (t tally) store(ctx context.Context, q querier) error {
	switch len(t) {
	case 0:
		return nil
	case 1:
		for at, n := range t {
			_, err := q.exec(ctx, "add_count", at.queue, at.kind, at.state, at.id, n)
			return err
		}
	}
	list := make([][5]any, 0, len(t))
	for at, n := range t {
		list = append(list, [5]any{at.queue, at.kind, at.state, at.id, n})
	}
	text, err := encode(list)
	if err != nil {
		return err
	}
	_, err = q.exec(ctx, "add_counts", text)
	return err
}
