package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Bounds of what is in memory at once.
const (
	pageTasks = 1000
	pageBytes = 8 << 20 // of payloads and attempts; a task that has more goes alone
)

// ErrDiffers says that a store does not hold what was imported.
var ErrDiffers = errors.New("the store differs from the export")

// Imported says what Import has done.
type Imported struct {
	Export Totals // what the export holds
	Store  Totals // what the store holds
	Stored int64  // tasks; the store had the others
}

// Import stores every task of an export, and compares all tasks of the store with it at the end. After an error, a crash or
// a kill, another call with the same export goes on: tasks that are there already are left as they are.
//
// ErrInvalid if the stream is not a whole export. ErrConflict if a worker is live, and if the store has other tasks.
// ErrDiffers if in the end the store does not hold the tasks of the export and no others.
func Import(ctx context.Context, into Store, from io.Reader) (Imported, error) {
	i := importer{ctx: ctx, into: into, encoder: newEncoder(io.Discard), understood: newCounter()}
	var err error
	if i.incarnation, err = into.Incarnation(ctx); err != nil {
		return Imported{}, err
	}
	if err := quiet(ctx, into); err != nil {
		return Imported{}, err
	}
	r := NewReader(from)
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
	if err := i.store(r.Totals().LastID); err != nil {
		return Imported{Stored: i.stored}, err
	}
	return i.check(r.Totals())
}

// Check reads an export to its end, and returns an ErrInvalid if it is not whole.
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

// importer stores pages.
type importer struct {
	ctx         context.Context
	into        Store
	incarnation string
	page        []store.Record
	bytes       int
	begun       bool
	stored      int64
	encoder     *encoder // of what was understood, which leaves out unknown fields
	understood  *counter
}

// add takes a record into the page, and stores the page if it is full.
func (i *importer) add(record store.Record) error {
	if !i.begun {
		if err := i.begin(record.ID); err != nil {
			return err
		}
	}
	task := lineOf(record, i.incarnation)
	if err := i.encoder.encode(task); err != nil {
		return err
	}
	i.understood.add(task.Task, i.encoder.text())
	i.page, i.bytes = append(i.page, record), i.bytes+len(i.encoder.text())
	if len(i.page) < pageTasks && i.bytes < pageBytes {
		return nil
	}
	return i.store(0)
}

// begin refuses a store that has tasks, unless an earlier import has begun with the same task.
func (i *importer) begin(first holdfast.TaskID) error {
	i.begun = true
	counts, err := i.into.Count(i.ctx, store.Filter{})
	if err != nil {
		return err
	}
	there := int64(0)
	for _, n := range counts {
		there += n
	}
	if there == 0 {
		return nil
	}
	if _, err = i.into.Task(i.ctx, first); errors.Is(err, holdfast.ErrNotFound) {
		return fmt.Errorf("%w: the store holds %d other tasks; import into a store without tasks, such as a new schema or file", holdfast.ErrConflict, there)
	}
	return err
}

// store stores the page. If the store cannot hold one of its records, it stores those before and names that one.
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

// check compares all that the store holds with what was read.
func (i *importer) check(read Totals) (Imported, error) {
	there, err := export(i.ctx, i.into, i.incarnation, newEncoder(io.Discard))
	done := Imported{Export: read, Store: there, Stored: i.stored}
	if err != nil {
		return done, fmt.Errorf("compare the store with the export: %w", err)
	}
	if differ := i.understood.totals().differences(there); differ != "" {
		return done, fmt.Errorf("%w: there are %s; a worker has run in it, or it had other tasks; import into a store without tasks", ErrDiffers, differ)
	}
	return done, nil
}
