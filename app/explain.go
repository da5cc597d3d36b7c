package app

import (
	"context"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/explain"
)

// Explain returns why a task does not run and what happens to it next. It returns an ErrNotFound if the store has no
// task with that id.
func (b *Backend) Explain(ctx context.Context, id holdfast.TaskID) (explain.Explanation, error) {
	now, err := b.ReadSettings(ctx)
	if err != nil {
		return explain.Explanation{}, err
	}
	return explain.Read(ctx, b.Store, id, now.Config.Settings())
}
