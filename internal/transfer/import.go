package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Limits of the page that is in memory.
const (
	pageTasks = 1000
	pageBytes = 8 << 20 // of task lines; a larger task gets a page of its own
)

// ErrDiffers means that the store does not contain exactly the tasks of the export.
var ErrDiffers = errors.New("the store differs from the export")

// Imported is the result of Import.
type Imported struct {
	Export Totals // totals of the export
	Store  Totals // totals of the store
	Stored int64  // number of tasks that this call stored; all others were in the store before
}

// Import stores every task of an export, and then compares all tasks of the store with the export. After an error or a
// crash, call Import again with the same export: it does not change tasks that are in the store already.
//
// Import returns holdfast.ErrInvalid if the stream is not a complete export. It returns holdfast.ErrConflict if a
// worker is live or the store has other tasks. It returns ErrDiffers if the tasks differ from the export at the end.
func Import(ctx context.Context, into Store, from io.Reader) (Imported, error) {
	i := importer{ctx: ctx, into: into, encoder: newEncoder(io.Discard), parsed: newCounter(), began: time.Now()}
	var err error
	if i.incarnation, err = into.Incarnation(ctx); err != nil {
		return Imported{}, err
	}
	if err := checkNoLiveWorkers(ctx, into); err != nil {
		return Imported{}, err
	}
	r := NewReader(from)
	r.onKey = i.addKey
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = i.add(record)
		}
		if err != nil {
			return Imported{Stored: i.stored}, err
		}
	}
	if err := i.checkEmpty(0); err != nil {
		return Imported{}, err
	}
	if err := i.store(r.Totals().LastID); err != nil {
		return Imported{Stored: i.stored}, err
	}
	if err := i.storeKeys(); err != nil {
		return Imported{Stored: i.stored}, err
	}
	return i.check(r.Totals())
}

// Check reads an export to its end. It returns holdfast.ErrInvalid if the stream is not a complete export.
func Check(ctx context.Context, from io.Reader) error {
	for r := NewReader(from); ; {
		if _, err := r.Next(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// importer stores records in pages.
type importer struct {
	ctx         context.Context
	into        Store
	incarnation string
	page        []store.Record
	keys        []store.KeptKey
	lasting     int64     // number of keys that are kept for more than an hour after began
	began       time.Time // by the clock of this process
	bytes       int
	started     bool
	stored      int64
	encoder     *encoder // encodes the parsed tasks, without unknown fields
	parsed      *counter
}

// add adds a record to the page, and stores the page if it is full.
func (i *importer) add(record store.Record) error {
	if err := i.checkEmpty(record.ID); err != nil {
		return err
	}
	task := lineOf(record, i.incarnation)
	if err := i.encoder.encode(task); err != nil {
		return err
	}
	i.parsed.add(task.Task, i.encoder.text())
	i.page, i.bytes = append(i.page, record), i.bytes+len(i.encoder.text())
	if len(i.page) < pageTasks && i.bytes < pageBytes {
		return nil
	}
	return i.store(0)
}

// checkEmpty returns holdfast.ErrConflict if the store has tasks, unless an earlier import stored the first task. Only the
// first call reads the store.
func (i *importer) checkEmpty(first holdfast.TaskID) error {
	if i.started {
		return nil
	}
	i.started = true
	counts, err := i.into.Count(i.ctx, store.Filter{})
	if err != nil {
		return err
	}
	actual := int64(0)
	for _, n := range counts.By {
		actual += n
	}
	if actual == 0 {
		return nil
	}
	if _, err = i.into.Task(i.ctx, first); errors.Is(err, holdfast.ErrNotFound) {
		return fmt.Errorf("%w: the store has %d other tasks; import into a store without tasks, such as a new schema or file", holdfast.ErrConflict, actual)
	}
	return err
}

// store stores the page. If the store rejects a record, store stores the records before it. Then it returns an error
// with the task id of the rejected record.
func (i *importer) store(last holdfast.TaskID) error {
	stored, err := i.into.Import(i.ctx, i.page, last)
	if errors.Is(err, holdfast.ErrInvalid) {
		for _, record := range i.page {
			stored, err := i.into.Import(i.ctx, []store.Record{record}, 0)
			if err != nil {
				return fmt.Errorf("task %s: %w", record.ID, err)
			}
			i.stored += int64(stored)
		}
	}
	if err != nil {
		return err
	}
	i.stored += int64(stored)
	i.page, i.bytes = i.page[:0], 0
	return nil
}

// addKey adds a unique key to the page of keys, and stores that page if it is full.
func (i *importer) addKey(key store.KeptKey) error {
	if err := i.checkEmpty(0); err != nil { // the export has no tasks
		return err
	}
	if key.Until.After(i.began.Add(time.Hour)) {
		i.lasting++
	}
	if i.keys = append(i.keys, key); len(i.keys) < pageTasks {
		return nil
	}
	return i.storeKeys()
}

// storeKeys stores the page of unique keys.
func (i *importer) storeKeys() error {
	err := i.into.ImportKeys(i.ctx, i.keys)
	i.keys = i.keys[:0]
	return err
}

// check compares all tasks of the store with the totals that were read. Keys whose time may have passed can be missing.
func (i *importer) check(read Totals) (Imported, error) {
	actual, err := export(i.ctx, i.into, i.incarnation, newEncoder(io.Discard))
	done := Imported{Export: read, Store: actual, Stored: i.stored}
	if err != nil {
		return done, fmt.Errorf("compare store with export: %w", err)
	}
	differences := i.parsed.totals().differences(actual)
	if differences == "" && actual.Keys.Keys < i.lasting {
		differences = fmt.Sprintf("%d unique keys instead of %d", actual.Keys.Keys, i.lasting)
	}
	if differences != "" {
		return done, fmt.Errorf("%w: %s; a worker has run tasks, or the store had other tasks; import into a store without tasks", ErrDiffers, differences)
	}
	return done, nil
}
