package simstore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Announce implements store.Notices. It looks at all groups at once.
func (c *Client) Announce(
	ctx context.Context, f store.NoticeFilter, compose func([]store.Notice) (holdfast.NewTask, error),
) (store.Announced, error) {
	var announced store.Announced
	err := c.do(ctx, Step{Op: "Announce"}, func(now time.Time) error {
		if c.store.db.noticesSince.IsZero() {
			c.store.db.noticesSince = now
			return nil
		}
		notices, next := c.store.notices(f, now)
		if announced.Next = next; len(notices) == 0 {
			return nil
		}
		task, err := compose(notices)
		if err != nil {
			return err
		}
		for _, n := range notices {
			c.store.setGroup(n.Group, true)
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

// notices returns the next events, and where to continue if there may be more.
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
