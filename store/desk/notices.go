package desk

import (
	"context"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/scan"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

const (
	// noticesSince is the key of the time of the first call of Announce.
	noticesSince = "notices_since"
	// noticeGroups is the number of groups that one call reads. Each costs some microseconds.
	noticeGroups = 2000
)

// noticeRow is a group to announce.
type noticeRow struct {
	Fingerprint string `json:"fingerprint"`
	Version     int64  `json:"version"`
	Tasks       int64  `json:"-"`
}

// stoppedRow is an operation to announce.
type stoppedRow struct {
	ID int64
	At time.Time
}

// Announce finds events that were not announced, calls compose with at most f.Limit of them, and stores the task
// that compose returns. The task is due at once, and its handler announces the events. One transaction stores the
// task and records the events. So each event is in one task, even if several processes call Announce at once.
// Without events, Announce does nothing. It may call compose again after a conflict.
//
// The very first call records its time. Deaths and stops of operations before that time are not announced.
//
// It reads first, because nearly always nothing has happened.
func (d *Desk) Announce(
	ctx context.Context, f store.NoticeFilter, compose func([]store.Notice) (holdfast.NewTask, error),
) (store.Announced, error) {
	const operation = "announce events"
	var since []struct{ Since int64 }
	if err := d.transactions.Read(ctx, operation, "notices_since", &since, noticesSince); err != nil {
		return store.Announced{}, err
	}
	if len(since) == 0 {
		return store.Announced{}, d.transactions.Change(ctx, operation, "notices_begin", noticesSince)
	}
	if len(f.Well) > 0 {
		if err := d.transactions.Change(ctx, operation, "notices_well", f.Well); err != nil {
			return store.Announced{}, err
		}
	}
	var announced store.Announced
	groups, next, err := d.groups(ctx, operation, f, since[0].Since)
	if err != nil {
		return store.Announced{}, err
	}
	announced.Next = next
	var stopped []stoppedRow
	if slices.Contains(f.Kinds, store.NoticeOperationStopped) {
		if err := d.transactions.Read(ctx, operation, "notices_stopped", &stopped, since[0].Since, column.Text(f.ExceptQueue), f.Limit); err != nil {
			return store.Announced{}, err
		}
	}
	if len(groups)+len(stopped)+len(f.Late) == 0 {
		return announced, nil
	}
	err = d.transactions.Transact(ctx, operation, func(ctx context.Context, tx transact.Transaction) error {
		announced.Notices, announced.Task = nil, 0
		for _, claim := range []func() ([]store.Notice, error){
			func() ([]store.Notice, error) { return claimGroups(ctx, tx, groups) },
			func() ([]store.Notice, error) { return claimStopped(ctx, tx, stopped) },
			func() ([]store.Notice, error) { return claimLate(ctx, tx, f.Late) },
		} {
			claimed, err := claim()
			if err != nil {
				return err
			}
			announced.Notices = append(announced.Notices, claimed...)
		}
		if len(announced.Notices) == 0 {
			return nil
		}
		task, err := compose(announced.Notices)
		if err != nil {
			return err
		}
		inserted, err := tx.Insert(ctx, []holdfast.NewTask{task})
		if err == nil {
			announced.Task = inserted.Tasks[0].ID
		}
		return err
	})
	if err != nil {
		return store.Announced{}, err
	}
	return announced, nil
}

// groups returns the next groups to announce, and where to continue if there may be more. At the end of a round it forgets
// old groups.
func (d *Desk) groups(ctx context.Context, operation string, f store.NoticeFilter, since int64) (due []noticeRow, next string, err error) {
	var rows []struct{ Fingerprint string }
	if err := d.transactions.Read(ctx, operation, "notices_groups", &rows, f.After, noticeGroups); err != nil {
		return nil, "", err
	}
	if len(rows) < noticeGroups { // the end of a round
		if err := d.transactions.Change(ctx, operation, "notices_forget", store.NoticeForgetAfter); err != nil || len(rows) == 0 {
			return nil, "", err
		}
	}
	fingerprints := scan.Map(rows, func(row struct{ Fingerprint string }) string { return row.Fingerprint })
	if len(rows) == noticeGroups {
		next = fingerprints[len(fingerprints)-1]
	}
	err = d.transactions.Read(ctx, operation, "notices_due", &due, fingerprints, since, column.Text(f.ExceptQueue), max(1, f.MinTasks),
		max(store.NoticeMaxTasks, f.MinTasks), slices.Contains(f.Kinds, store.NoticeGroupAppeared), slices.Contains(f.Kinds, store.NoticeGroupReturned), f.Limit)
	if err == nil && len(due) == f.Limit && f.Limit > 0 {
		next = due[len(due)-1].Fingerprint
	}
	return due, next, err
}

// claimGroups stores that groups are announced, and returns those that no other process has announced.
func claimGroups(ctx context.Context, tx transact.Transaction, due []noticeRow) ([]store.Notice, error) {
	if len(due) == 0 {
		return nil, nil
	}
	var claimed []scan.DeathGroup
	if err := tx.Read(ctx, "notices_claim", &claimed, transact.Encode(due)); err != nil {
		return nil, err
	}
	notices := make([]store.Notice, len(claimed))
	for i, row := range claimed {
		group := row.Value()
		at := slices.IndexFunc(due, func(row noticeRow) bool { return row.Fingerprint == group.Fingerprint })
		group.Tasks = due[at].Tasks
		notices[i] = store.Notice{Kind: store.NoticeGroupAppeared, At: group.LastAt, Group: group}
		if group.State == store.GroupReturned {
			notices[i].Kind = store.NoticeGroupReturned
		}
	}
	slices.SortFunc(notices, store.CompareNotices)
	return notices, nil
}

// claimStopped stores that operations are announced as stopped, and returns those that no other process has announced.
func claimStopped(ctx context.Context, tx transact.Transaction, stopped []stoppedRow) ([]store.Notice, error) {
	var notices []store.Notice
	for _, row := range stopped {
		claimed, err := tx.Change(ctx, "notices_stopped_claim", row.ID)
		if err != nil {
			return nil, err
		}
		if claimed == 0 {
			continue
		}
		o, err := transact.Operation(ctx, tx, store.ID(row.ID))
		if err != nil {
			return nil, err
		}
		notices = append(notices, store.Notice{Kind: store.NoticeOperationStopped, At: row.At, Operation: o})
	}
	return notices, nil
}

// claimLate stores that queues are announced as late, and returns those that no other process has announced.
func claimLate(ctx context.Context, tx transact.Transaction, late []store.LateQueue) ([]store.Notice, error) {
	if len(late) == 0 {
		return nil, nil
	}
	names := scan.Map(late, func(queue store.LateQueue) string { return queue.Name })
	var claimed []struct {
		Name string
		At   time.Time
	}
	if err := tx.Read(ctx, "notices_late", &claimed, names); err != nil {
		return nil, err
	}
	var notices []store.Notice
	for _, queue := range late {
		for _, row := range claimed {
			if row.Name == queue.Name {
				notices = append(notices, store.Notice{Kind: store.NoticeQueueLate, At: row.At, Queue: queue})
			}
		}
	}
	return notices, nil
}
