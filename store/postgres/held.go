package postgres

import (
	"context"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// heldStep is how many tasks one step of Held returns; a worker seldom holds more.
const heldStep = 1000

// Held implements store.Work. It reads all tasks, so nobody asks it without need.
func (s *Store) Held(ctx context.Context, run holdfast.RunID) ([]holdfast.Task, error) {
	var rows []taskRow
	_, err := s.inSteps(ctx, "find held tasks", walk{size: heldStep}, func(tx store.Tx, r idRange) (step, error) {
		var found []taskRow
		if err := s.all(ctx, tx, &found, "held", r.after, r.through, r.size, int64(run)); err != nil || len(found) == 0 {
			return step{}, err
		}
		rows = append(rows[:r.changed], found...) // a step may be repeated
		return step{Changed: len(found), Last: int64(found[len(found)-1].ID)}, nil
	})
	if err != nil {
		return nil, err
	}
	return tasksOf(rows), nil
}
