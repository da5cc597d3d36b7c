package roles

import (
	"context"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

const (
	// noticesSince is the key of the time of the first look for events.
	noticesSince = "notices_since"
	// noticeGroups is how many groups one call looks at. Each costs some microseconds.
	noticeGroups = 2000
)

// Notices implements store.Notices.
type Notices struct{ transactions Transactions }

// NewNotices returns the role, which uses the statements notices_since, notices_begin, notices_groups, notices_due,
// notices_claim and notices_forget.
func NewNotices(t Transactions) Notices { return Notices{t} }

// noticeRow is a group to announce.
type noticeRow struct {
	Fingerprint string `json:"fingerprint"`
	Version     int64  `json:"version"`
	Tasks       int64  `json:"-"`
}

// Announce implements store.Notices. It reads first, because nearly always nothing has happened.
func (n *Notices) Announce(
	ctx context.Context, f store.NoticeFilter, compose func([]store.Notice) (holdfast.NewTask, error),
) (store.Announced, error) {
	const operation = "announce events"
	var since []struct{ Since int64 }
	if err := n.transactions.Read(ctx, operation, "notices_since", &since, noticesSince); err != nil {
		return store.Announced{}, err
	}
	if len(since) == 0 {
		return store.Announced{}, n.transactions.Change(ctx, operation, "notices_begin", noticesSince)
	}
	var rows []struct{ Fingerprint string }
	if err := n.transactions.Read(ctx, operation, "notices_groups", &rows, f.After, noticeGroups); err != nil {
		return store.Announced{}, err
	}
	if len(rows) == 0 {
		return store.Announced{}, n.transactions.Change(ctx, operation, "notices_forget", store.NoticeForgetAfter)
	}
	fingerprints := make([]string, len(rows))
	for i, row := range rows {
		fingerprints[i] = row.Fingerprint
	}
	var announced store.Announced
	if len(rows) == noticeGroups {
		announced.Next = fingerprints[len(fingerprints)-1]
	}
	var due []noticeRow
	err := n.transactions.Read(ctx, operation, "notices_due", &due, fingerprints, since[0].Since, column.Text(f.ExceptQueue), max(1, f.MinTasks),
		max(store.NoticeMaxTasks, f.MinTasks), slices.Contains(f.Kinds, store.NoticeGroupAppeared), slices.Contains(f.Kinds, store.NoticeGroupReturned), f.Limit)
	if err != nil || len(due) == 0 {
		return announced, err
	}
	if len(due) == f.Limit {
		announced.Next = due[len(due)-1].Fingerprint
	}
	err = n.transactions.Transact(ctx, operation, func(ctx context.Context, tx Transaction) error {
		var err error
		announced.Notices, announced.Task, err = announce(ctx, tx, due, compose)
		return err
	})
	if err != nil {
		return store.Announced{}, err
	}
	return announced, nil
}

func announce(
	ctx context.Context, tx Transaction, due []noticeRow, compose func([]store.Notice) (holdfast.NewTask, error),
) ([]store.Notice, holdfast.TaskID, error) {
	var claimed []scan.DeathGroup
	if err := tx.Read(ctx, "notices_claim", &claimed, encode(due)); err != nil || len(claimed) == 0 {
		return nil, 0, err
	}
	notices := make([]store.Notice, len(claimed))
	for i, group := range scan.DeathGroups(claimed) {
		at := slices.IndexFunc(due, func(row noticeRow) bool { return row.Fingerprint == group.Fingerprint })
		group.Tasks = due[at].Tasks
		notices[i] = store.Notice{Kind: store.NoticeGroupAppeared, At: group.LastAt, Group: group}
		if group.State == store.GroupReturned {
			notices[i].Kind = store.NoticeGroupReturned
		}
	}
	slices.SortFunc(notices, store.CompareNotices)
	task, err := compose(notices)
	if err != nil {
		return nil, 0, err
	}
	id, err := tx.Insert(ctx, task)
	return notices, id, err
}
