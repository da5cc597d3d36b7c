package roles

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/scan"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// The sizes of the windows of ids in a scan, which reads from the newest task down. A window grows or shrinks so that a
// statement takes about a tenth of the time limit.
const (
	scanLimit   = time.Second
	firstWindow = 2000
	maxWindow   = 1 << 20
	// firstPayloadWindow is smaller, because a payload may have a megabyte.
	firstPayloadWindow = 64
)

// commonTag is the number of tasks that makes a tag common. A common tag selects no better than the dead tasks do.
const commonTag = 10_000

// query is a filter, with data for the choice of a source.
type query struct {
	store.Filter
	commonTags bool // even the rarest tag is common
}

// prepare merges the bounds of ids, also those of the batch, and puts the rarest tag first.
func (i *inspector) prepare(ctx context.Context, operation string, f store.Filter) (query, error) {
	if f.MaxID > 0 && f.MaxID < math.MaxInt64 && (f.Before == 0 || f.Before > f.MaxID) {
		f.Before = f.MaxID + 1
	}
	if f.Worker != 0 && (len(f.States) == 0 || slices.Contains(f.States, holdfast.Running)) {
		f.States = []holdfast.State{holdfast.Running} // no other task has a worker
	}
	if f.Batch != 0 {
		if err := i.boundBatch(ctx, operation, &f); err != nil {
			return query{}, err
		}
	}
	q := query{Filter: f}
	if len(f.Tags) == 0 {
		return q, nil
	}
	var sizes []scan.TagSize
	if err := i.statements.Read(ctx, operation, "tag_sizes", &sizes, column.List(f.Tags), commonTag); err != nil {
		return q, err
	}
	slices.SortFunc(sizes, func(a, b scan.TagSize) int { return cmp.Compare(a.Size, b.Size) })
	q.Tags, q.commonTags = nil, sizes[0].Size >= commonTag
	for _, row := range sizes {
		q.Tags = append(q.Tags, row.Tag)
	}
	return q, nil
}

// boundBatch adds the bounds of the members of the batch. A batch that prune has deleted has no bounds.
func (i *inspector) boundBatch(ctx context.Context, operation string, f *store.Filter) error {
	var found []struct{ First, Last holdfast.TaskID }
	if err := i.statements.Read(ctx, operation, "plan_bounds", &found, int64(f.Batch)); err != nil || len(found) == 0 {
		return err
	}
	f.MinID = max(f.MinID, found[0].First)
	if f.Before == 0 || f.Before > found[0].Last {
		f.Before = found[0].Last + 1 // 1 selects nothing
	}
	return nil
}

// source is the set of tasks that a list or a count reads: all tasks, or those of an index.
type source struct {
	statement string
	// last is the statement that returns the highest id of the source below its first argument. Its second argument is
	// key, unless key is "". last is empty if the source is so small that one statement reads it.
	last string
	key  string
}

// source returns the source with the fewest tasks. operation is "list" or "count".
func (i *inspector) source(operation string, q *query) source {
	chosen := operation
	if len(q.States) == 1 && (q.States[0] == holdfast.Dead || q.States[0] == holdfast.Running) {
		chosen += "_" + string(q.States[0])
	}
	dead := ofDeaths(q.Filter) || strings.HasSuffix(chosen, "_dead")
	switch {
	case len(q.IDs) > 0:
		return source{statement: operation + "_ids"}
	case q.Unique != "":
		return source{statement: operation + "_unique"}
	case q.Key != "":
		return source{operation + "_key", "last_id_key", q.Key}
	case len(q.Tags) > 0 && !dead:
		return source{operation + "_tag", "last_id_tag", q.Tags[0]}
	case len(q.Tags) > 0 && !q.commonTags:
		return source{operation + "_tag_dead", "last_id_tag", q.Tags[0]}
	case q.Fingerprint != "":
		return source{operation + "_group", "last_id_group", q.Fingerprint}
	case ofDeaths(q.Filter):
		return source{operation + "_deaths", "last_id_deaths", ""}
	case dead:
		return source{chosen, "last_id_dead", ""}
	case strings.HasSuffix(chosen, "_running"):
		return source{statement: chosen}
	}
	return source{chosen, "last_id", ""}
}

// ofDeaths reports whether a filter has a condition on the records of deaths.
func ofDeaths(f store.Filter) bool {
	return f.Fingerprint != "" || f.Class != "" || f.Host != "" || f.Status != 0
}

// arguments returns the arguments of the statements for list and count. These statements select ids from after on.
func (q *query) arguments(after holdfast.TaskID) []any {
	return []any{
		q.States, column.Text(q.Type), q.subqueues(), column.Text(q.Error), q.Before, transact.Bound(q.Since), transact.Bound(q.Until),
		column.Text(q.Unique), q.MinAttempt, q.MaxAttempt, max(after, q.MinID), column.List(q.Tags), payloadTerms(q.Payload), q.IDs,
		column.Text(q.Fingerprint), column.Text(q.Class), column.Text(q.Host), q.Status, column.Text(q.Key), q.suffixes(), column.Text(q.Topic), int64(q.Batch),
		q.NotIDs, int64(q.Worker), int64(q.Operation),
	}
}

// subqueues returns the subqueues that the query selects. The list is empty if the query names no queue.
func (q *query) subqueues() []string {
	if q.Queue == "" {
		return []string{}
	}
	return holdfast.Subqueues(column.Text(q.Queue), q.Priorities...)
}

// suffixes returns the suffixes of the subqueues that the query selects: the parts of their names after the dot. The
// list is empty if the query names a queue.
func (q *query) suffixes() []string {
	suffixes := []string{}
	if q.Queue != "" {
		return suffixes
	}
	for _, p := range q.Priorities {
		suffixes = append(suffixes, strings.TrimPrefix(holdfast.Subqueue("", p), "."))
	}
	return suffixes
}

// payloadTerms returns conditions as a JSON list.
func payloadTerms(terms []store.PayloadTerm) string {
	type row struct {
		store.PayloadTerm
		Number string `json:"number,omitempty"`
	}
	rows := make([]row, len(terms))
	for i, term := range terms {
		term.Value, term.Path = column.Text(term.Value), slices.Clone(term.Path)
		for j := range term.Path {
			term.Path[j] = column.Text(term.Path[j])
		}
		rows[i] = row{term, term.Number()}
	}
	return transact.Encode(rows)
}

// List implements store.Inspector.
func (i *inspector) List(ctx context.Context, f store.Filter) (store.Page, error) {
	const operation = "list tasks"
	if f.Limit <= 0 {
		f.Limit = transact.DefaultLimit
	}
	q, err := i.prepare(ctx, operation, f)
	if err != nil {
		return store.Page{}, err
	}
	from := i.source("list", &q)
	var found []scan.Task
	next, err := i.scan(ctx, operation, from, &q, func(ctx context.Context, after holdfast.TaskID) (int, error) {
		var rows []scan.Task
		limit := q.Limit + 1 - len(found) // one more task shows that there is another page
		err := i.statements.Read(ctx, operation, from.statement, &rows, append(q.arguments(after), limit)...)
		if err == nil {
			found = append(found, rows...)
		}
		return len(rows), err
	}, func() bool { return len(found) > q.Limit })
	if err != nil {
		return store.Page{}, err
	}
	if next != 0 {
		return store.Page{Tasks: scan.Tasks(found), Next: next}, nil
	}
	return page(found, q.Limit), nil
}

// scan calls read for windows of ids, from the newest task down, until the result is complete or a second has passed.
// Then it returns where to continue; otherwise it returns 0. read reads the ids from after on and below q.Before, and
// returns the number of rows. A source with few tasks is one window.
func (i *inspector) scan(
	ctx context.Context, operation string, from source, q *query, read func(ctx context.Context, after holdfast.TaskID) (int, error), complete func() bool,
) (next holdfast.TaskID, err error) {
	if from.last == "" {
		_, err := read(ctx, 0)
		return 0, err
	}
	if q.Before == 0 {
		q.Before = math.MaxInt64
	}
	w := newWindow(q)
	for skip, progress := true, false; ; progress = true {
		if skip { // the ids may have large gaps
			if err := i.skip(ctx, operation, from, q); err != nil {
				return 0, err
			}
		}
		if q.Before <= max(q.MinID, 1) {
			return 0, nil
		}
		if progress && w.expired() {
			return q.Before, nil
		}
		rows, after, err := w.read(ctx, q, read)
		if err != nil || complete() {
			return 0, err
		}
		q.Before, skip = after, rows == 0
	}
}

// skip moves the upper bound of the query down to the next task of the source.
func (i *inspector) skip(ctx context.Context, operation string, from source, q *query) error {
	args := []any{q.Before}
	if from.key != "" {
		args = append(args, column.Text(from.key))
	}
	var last []scan.ID
	if err := i.statements.Read(ctx, operation, from.last, &last, args...); err != nil {
		return err
	}
	q.Before = holdfast.TaskID(last[0].ID) + 1
	return nil
}

// page returns a page of at most limit tasks. If there is another page, rows has one more task.
func page(rows []scan.Task, limit int) store.Page {
	if len(rows) <= limit {
		return store.Page{Tasks: scan.Tasks(rows)}
	}
	return store.Page{Tasks: scan.Tasks(rows[:limit]), Next: rows[limit-1].ID}
}

// window is the number of ids that the next statement of a scan reads.
type window struct {
	began time.Time // start of the scan
	size  holdfast.TaskID
	least holdfast.TaskID
}

func newWindow(q *query) window {
	w := window{began: time.Now(), size: firstWindow, least: firstWindow}
	if len(q.Payload) > 0 {
		w.size, w.least = firstPayloadWindow, 1
	}
	return w
}

func (w *window) expired() bool { return time.Since(w.began) > scanLimit }

// read reads the window below q.Before, and returns its lower bound. If a statement takes half of the time limit, the
// rows are much larger than before. Then read cancels it and reads a smaller window.
func (w *window) read(ctx context.Context, q *query, read func(context.Context, holdfast.TaskID) (int, error)) (rows int, after holdfast.TaskID, err error) {
	for {
		after := max(q.Before-w.size, q.MinID, 1)
		limited, cancel := ctx, context.CancelFunc(func() {})
		if w.size > w.least {
			limited, cancel = context.WithTimeout(ctx, scanLimit/2)
		}
		began := time.Now()
		rows, err := read(limited, after)
		late := limited.Err() != nil && ctx.Err() == nil
		cancel()
		switch took := time.Since(began); {
		case err != nil && late:
			w.size = max(w.size/16, w.least)
			continue
		case took < scanLimit/200:
			w.size = min(4*w.size, maxWindow)
		case took < scanLimit/20:
			w.size = min(2*w.size, maxWindow)
		case took > scanLimit/5:
			w.size = max(w.size/2, w.least)
		}
		return rows, after, err
	}
}
