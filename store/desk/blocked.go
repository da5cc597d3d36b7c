package desk

import (
	"context"

	"github.com/holdfastq/holdfast/store"
)

// BlockedByQueue returns how many tasks the closed gates, limits among them, block in each queue. It reads at most
// MaxCountedBlocked blocked tasks, of all queues together, and looks up each of them by its id.
func (d *Desk) BlockedByQueue(ctx context.Context) (store.BlockedCounts, error) {
	var rows []struct {
		Queue string
		Tasks int64
	}
	counts := store.BlockedCounts{Tasks: make(map[string]int64)}
	err := d.transactions.Read(ctx, "count blocked tasks", "blocked_by_queue", &rows, store.MaxCountedBlocked)
	read := int64(0)
	for _, row := range rows {
		if read += row.Tasks; row.Queue != "" { // the others are no longer blocked
			counts.Tasks[row.Queue] = row.Tasks
		}
	}
	counts.More = read >= store.MaxCountedBlocked
	return counts, err
}
