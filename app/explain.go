package app

import (
	"context"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/explain"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// Explain returns why a task does not run and what happens to it next. It returns an ErrNotFound if the store has no
// task with that id.
func (b *Backend) Explain(ctx context.Context, id holdfast.TaskID) (explain.Explanation, error) {
	var facts explain.Facts
	var err error
	if facts.Task, err = b.Store.Task(ctx, id); err != nil {
		return explain.Explanation{}, err
	}
	if facts.Attempts, err = b.Store.Attempts(ctx, id); err != nil {
		return explain.Explanation{}, err
	}
	positions, err := b.Store.Positions(ctx, []message.Ticket{{Task: id, Attempt: facts.Task.Attempt}})
	if err != nil {
		return explain.Explanation{}, err
	}
	facts.Position = positions[0]
	if facts.Workers, err = b.Store.Workers(ctx, false); err != nil {
		return explain.Explanation{}, err
	}
	if facts.Task.State == holdfast.Ready {
		queues, err := b.Store.Queues(ctx)
		if err != nil {
			return explain.Explanation{}, err
		}
		if i := slices.IndexFunc(queues, func(q store.Queue) bool { return q.Name == facts.Task.Queue }); i >= 0 {
			facts.Queue = queues[i]
		}
	}
	if facts.Now, err = b.Store.Now(ctx); err != nil {
		return explain.Explanation{}, err
	}
	facts.Settings = b.Config.Settings().For(facts.Task.Type)
	return explain.Of(facts), nil
}
