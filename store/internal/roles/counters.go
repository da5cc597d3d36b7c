package roles

import (
	"cmp"
	"context"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/scan"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// Counters implements store.Counters except FoldCounts.
type Counters struct{ statements transact.Statements }

// NewCounters returns the role, which uses the statements count_groups, recount and recount_settle.
func NewCounters(s transact.Statements) Counters { return Counters{s} }

// CountGroups implements store.Counters.
func (c *Counters) CountGroups(ctx context.Context) ([]store.CountGroup, error) {
	return countGroups(ctx, c.statements, "count groups of tasks")
}

func countGroups(ctx context.Context, s transact.Statements, operation string) ([]store.CountGroup, error) {
	var rows []scan.CountGroup
	if err := s.Read(ctx, operation, "count_groups", &rows); err != nil {
		return nil, err
	}
	var groups []store.CountGroup
	for _, row := range rows {
		queue, priority := holdfast.SplitSubqueue(row.Queue)
		groups = append(groups, store.CountGroup{Queue: queue, Priority: priority, Type: row.Type, State: row.State, Tasks: row.Count})
	}
	slices.SortFunc(groups, func(a, b store.CountGroup) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Type, b.Type), cmp.Compare(a.State, b.State))
	})
	return groups, nil
}

// Recount implements store.Counters. It holds no lock while it counts. Between the two statements, a change of a task
// also changes the stored numbers, so the differences stay right.
func (c *Counters) Recount(ctx context.Context) (corrected int64, err error) {
	const operation = "recount tasks"
	var rows []scan.Recounted
	if err := c.statements.Read(ctx, operation, "recount", &rows); err != nil {
		return 0, err
	}
	step := rows[0]
	rows = slices.DeleteFunc(rows, func(row scan.Recounted) bool { return row.N == 0 })
	for _, row := range rows {
		corrected += max(row.N, -row.N)
	}
	return corrected, c.statements.Change(ctx, operation, "recount_settle", step.Step, step.Block, transact.Encode(rows))
}
