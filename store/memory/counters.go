package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// count is the number of tasks of a group, or a recent change of that number.
type count struct {
	group
	n int64
}

type group struct {
	queue, kind string
	state       holdfast.State // final, or anyState
}

// anyState marks a number of tasks in all states.
const anyState holdfast.State = "all"

// count adds n tasks in a state. Like the real adapter, it only adds a row.
func (d *database) count(task *Task, state holdfast.State, n int64) {
	d.deltas = append(d.deltas, count{group{task.Subqueue(), task.Type, state}, n})
}

// moved counts a task that was in the given state before.
func (d *database) moved(task *Task, before holdfast.State) {
	if before.Final() {
		d.count(task, before, -1)
	}
	if task.State.Final() {
		d.count(task, task.State, 1)
	}
}

// stored counts a task that has joined its group. deleted counts a task that is about to leave its group.
func (d *database) stored(task *Task)  { d.countAll(task, 1) }
func (d *database) deleted(task *Task) { d.countAll(task, -1) }

func (d *database) countAll(task *Task, n int64) {
	d.count(task, anyState, n)
	if task.State.Final() {
		d.count(task, task.State, n)
	}
}

// recorded returns the numbers by group.
func (d *database) recorded() map[group]int64 {
	numbers := make(map[group]int64)
	for _, list := range [][]count{d.counts, d.deltas} {
		for _, c := range list {
			numbers[c.group] += c.n
		}
	}
	return numbers
}

// differences returns by how much the numbers differ from the tasks.
func (d *database) differences() map[group]int64 {
	numbers := d.recorded()
	for i := range d.tasks {
		task := &d.tasks[i]
		numbers[group{task.Subqueue(), task.Type, anyState}]--
		if task.State.Final() {
			numbers[group{task.Subqueue(), task.Type, task.State}]--
		}
	}
	for g, n := range numbers {
		if n == 0 {
			delete(numbers, g)
		}
	}
	return numbers
}

// Miscounted describes a group whose number differs from the number of its tasks, or returns "" if there is none.
func (s *Store) Miscounted() string {
	if s.miscounted {
		return "a recount has corrected the counters"
	}
	for g, n := range s.db.differences() {
		return fmt.Sprintf("the counters have %+d tasks too many in queue %s, type %s, state %s", n, g.queue, g.kind, g.state)
	}
	return ""
}

// CountGroups implements store.Counters.
func (c *Client) CountGroups(ctx context.Context) (groups []store.CountGroup, err error) {
	err = c.do(ctx, Step{Op: "CountGroups"}, func(time.Time) error {
		groups = c.store.db.countGroups()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return groups, nil
}

func (d *database) countGroups() []store.CountGroup {
	numbers := d.recorded()
	for g, n := range d.recorded() {
		if g.state == anyState {
			delete(numbers, g)
			numbers[group{g.queue, g.kind, holdfast.Ready}] += n
		} else {
			numbers[group{g.queue, g.kind, holdfast.Ready}] -= n
		}
	}
	for i := range d.tasks {
		if task := &d.tasks[i]; task.State == holdfast.Running {
			numbers[group{task.Subqueue(), task.Type, holdfast.Ready}]--
			numbers[group{task.Subqueue(), task.Type, holdfast.Running}]++
		}
	}
	var groups []store.CountGroup
	for g, n := range numbers {
		if n > 0 {
			queue, priority := holdfast.SplitSubqueue(g.queue)
			groups = append(groups, store.CountGroup{Queue: queue, Priority: priority, Type: g.kind, State: g.state, Tasks: n})
		}
	}
	slices.SortFunc(groups, func(a, b store.CountGroup) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Type, b.Type), cmp.Compare(a.State, b.State))
	})
	return groups
}

// FoldCounts implements store.Counters.
func (c *Client) FoldCounts(ctx context.Context, limit int) (int, error) {
	n := 0
	err := c.do(ctx, Step{Op: "FoldCounts"}, func(time.Time) error {
		d := &c.store.db
		n = min(limit, len(d.deltas))
		for _, delta := range d.deltas[:n] {
			i := slices.IndexFunc(d.counts, func(c count) bool { return c.group == delta.group })
			if i < 0 {
				i = len(d.counts)
				d.counts = append(d.counts, count{group: delta.group})
			}
			d.counts[i].n += delta.n
		}
		d.deltas = slices.Delete(d.deltas, 0, n)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// Recount implements store.Counters. It counts all tasks in one step.
func (c *Client) Recount(ctx context.Context) (corrected int64, err error) {
	err = c.do(ctx, Step{Op: "Recount"}, func(time.Time) error {
		for g, n := range c.store.db.differences() {
			c.store.db.deltas = append(c.store.db.deltas, count{g, -n})
			corrected += max(n, -n)
			c.store.miscounted = true
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return corrected, nil
}
