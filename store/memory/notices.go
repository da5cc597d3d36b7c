package memory

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Announce implements store.Notices. It reads all groups at once.
func (c *Client) Announce(
	ctx context.Context, f store.NoticeFilter, compose func([]store.Notice) (holdfast.NewTask, error),
) (store.Announced, error) {
	var announced store.Announced
	err := c.do(ctx, Step{Op: "Announce"}, func(now time.Time) error {
		if c.store.db.noticesSince.IsZero() {
			c.store.db.noticesSince = now
			return nil
		}
		db := &c.store.db
		for _, name := range f.Well {
			if i, known := db.findQueue(name); known {
				db.queues[i].late = false
			}
		}
		notices, next := c.store.notices(f, now)
		notices = append(append(notices, db.stopped(f)...), db.late(f, now)...)
		if announced.Next = next; len(notices) == 0 {
			return nil
		}
		task, err := compose(notices)
		if err != nil {
			return err
		}
		for _, n := range notices {
			switch n.Kind {
			case store.NoticeOperationStopped:
				db.operation(n.Operation.ID).unannouncedAt = time.Time{}
			case store.NoticeQueueLate:
				i, _ := db.findQueue(n.Queue.Name)
				db.queues[i].late = true
			default:
				c.store.setGroup(n.Group, true)
			}
		}
		announced.Notices = notices
		announced.Task = c.store.insert([]holdfast.NewTask{task}, now, 0).Tasks[0].ID
		return nil
	})
	if err != nil {
		return store.Announced{}, err
	}
	return announced, nil
}

// stopped returns the operations that have stopped and were not announced.
func (d *database) stopped(f store.NoticeFilter) (notices []store.Notice) {
	for i := range d.operations {
		o := &d.operations[i]
		if slices.Contains(f.Kinds, store.NoticeOperationStopped) && o.unannouncedAt.After(d.noticesSince) &&
			(f.ExceptQueue == "" || o.Filter.Queue != f.ExceptQueue) && len(notices) < f.Limit {
			notices = append(notices, store.Notice{Kind: store.NoticeOperationStopped, At: o.unannouncedAt, Operation: o.Operation})
		}
	}
	return notices
}

// late returns the queues that are late and were not announced.
func (d *database) late(f store.NoticeFilter, now time.Time) (notices []store.Notice) {
	for _, queue := range f.Late {
		if i, known := d.findQueue(queue.Name); known && !d.queues[i].late {
			notices = append(notices, store.Notice{Kind: store.NoticeQueueLate, At: now, Queue: queue})
		}
	}
	return notices
}

// notices returns the next groups to announce, and where to continue if there may be more.
func (s *Store) notices(f store.NoticeFilter, now time.Time) (notices []store.Notice, next string) {
	groups := s.groups(store.DeathFilter{}, now)
	for _, fingerprint := range slices.Sorted(maps.Keys(groups)) {
		g := groups[fingerprint]
		kind := store.NoticeGroupAppeared
		if !g.ResolvedAt.IsZero() {
			kind = store.NoticeGroupReturned
		}
		if fingerprint <= f.After || s.db.groups[fingerprint].announced || !slices.Contains(f.Kinds, kind) {
			continue
		}
		g.Tasks, g.LastHour = 0, 0
		for i := range s.db.tasks {
			task := &s.db.tasks[i]
			if task.fingerprint() == fingerprint && task.Queue != f.ExceptQueue &&
				task.FinishedAt.After(g.ResolvedAt) && task.FinishedAt.After(s.db.noticesSince) {
				g.Tasks++
			}
		}
		if g.Tasks >= int64(max(1, f.MinTasks)) {
			g.Tasks = min(g.Tasks, int64(max(f.MinTasks, store.NoticeMaxTasks)))
			notices = append(notices, store.Notice{Kind: kind, At: g.LastAt, Group: g})
		}
		if len(notices) == f.Limit {
			next = fingerprint
			break
		}
	}
	slices.SortFunc(notices, store.CompareNotices)
	return notices, next
}
