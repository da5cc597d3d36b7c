// Package transfer exports the tasks of a store as lines of JSON and imports them into another store.
//
// The first line is a header with the version of the format. Each following line is one task with its attempts, in the
// order of the task ids. The lines after them are the unique keys that the store keeps for a time, in the order of the
// keys. The last line contains the number of tasks in each state and of keys, with checksums. Readers ignore unknown
// fields, so a change that readers must understand needs a new version.
//
// Export and Import return an error if a worker is live. While a task is in two stores, neither store may run it before
// the caller has chosen one of them. The memory that both functions need does not depend on the number of tasks.
package transfer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/contain"
	"github.com/holdfastq/holdfast/store"
)

// Store is a store to export from or to import into.
type Store interface {
	store.Transfer
	store.Inspector
	Incarnation(ctx context.Context) (string, error) // see store.Settings
	Workers(ctx context.Context, all bool) ([]store.Worker, error)
}

// Export writes every task of a store and returns the totals. It returns holdfast.ErrConflict if a worker is live or a
// task is running. After an error, the output ends with a whole line, and the last line of an export is missing, so a
// Reader rejects the output.
func Export(ctx context.Context, from Store, to io.Writer) (Totals, error) {
	incarnation, err := from.Incarnation(ctx)
	if err != nil {
		return Totals{}, err
	}
	e := newEncoder(to)
	if err := e.encode(line{Header: &header{Format: format, Version: version, Incarnation: incarnation, ExportedAt: time.Now().UTC().Truncate(time.Second)}}); err != nil {
		return Totals{}, err
	}
	totals, err := export(ctx, from, incarnation, e)
	if err != nil {
		_ = e.flush() // the caller has a cause already
		return Totals{}, err
	}
	if err := e.encode(line{End: &totals}); err != nil {
		return Totals{}, err
	}
	return totals, e.flush()
}

// export writes the lines of the tasks and of the unique keys.
func export(ctx context.Context, from Store, incarnation string, e *encoder) (Totals, error) {
	if err := checkNoLiveWorkers(ctx, from); err != nil {
		return Totals{}, err
	}
	c := newCounter()
	last, err := from.Export(ctx, func(record store.Record) error {
		err := contain.Call(func() error {
			task := lineOf(record, incarnation)
			if err := task.Task.check(); err != nil {
				return unreadable(record.ID, err)
			}
			if err := e.encode(task); err != nil {
				return err
			}
			c.add(task.Task, e.text())
			return ctx.Err()
		})
		if _, panicked := errors.AsType[*holdfast.PanicError](err); panicked {
			return fmt.Errorf("export task %s: %w", record.ID, err)
		}
		return err
	})
	if err != nil {
		return Totals{}, err
	}
	err = from.ExportKeys(ctx, func(k store.KeptKey) error {
		if k.Task > last { // stored after the export of the tasks
			return nil
		}
		if err := e.encode(line{Key: &keyLine{k.Key, k.Task, k.CreatedAt, jsonTime(k.Until)}}); err != nil {
			return err
		}
		c.addKey(e.text())
		return ctx.Err()
	})
	if err != nil {
		return Totals{}, err
	}
	totals := c.totals()
	totals.LastID = last
	return totals, checkNoLiveWorkers(ctx, from) // a worker that registered in the meantime may run a task now
}

// unreadable returns the error for a task that no import accepts. Such a task may come from a program that wrote into
// the tables itself, or from a build with fewer checks.
func unreadable(id holdfast.TaskID, cause error) error {
	err := fmt.Errorf("%w: no import could read task %s: %w", holdfast.ErrConflict, id, cause)
	return holdfast.WithHint(err, holdfast.Advice("cancel the task if it has not ended, purge it, and export again"))
}

// checkNoLiveWorkers returns holdfast.ErrConflict if a worker of the store is live.
func checkNoLiveWorkers(ctx context.Context, s Store) error {
	workers, err := s.Workers(ctx, false)
	if err != nil || len(workers) == 0 {
		return err
	}
	err = fmt.Errorf("%w: worker %s is live, last seen at %s", holdfast.ErrConflict, workers[0].Name, workers[0].RenewedAt.Format(time.RFC3339))
	return holdfast.WithHint(err, holdfast.Hint{Kind: holdfast.HintStopWorkers})
}

type encoder struct {
	to   *bufio.Writer
	line bytes.Buffer
	json *json.Encoder
}

func newEncoder(to io.Writer) *encoder {
	e := &encoder{to: bufio.NewWriterSize(to, 256<<10)}
	e.json = json.NewEncoder(&e.line)
	e.json.SetEscapeHTML(false)
	return e
}

// encode adds a line. The output gets whole lines only.
func (e *encoder) encode(l line) error {
	e.line.Reset()
	if err := e.json.Encode(l); err != nil {
		return fmt.Errorf("write export: %w", err)
	}
	if e.line.Len() > e.to.Available() {
		if err := e.flush(); err != nil {
			return err
		}
	}
	if _, err := e.to.Write(e.line.Bytes()); err != nil {
		return fmt.Errorf("write export: %w", err)
	}
	return nil
}

// text returns the last line without its line feed. The result is valid until the next call of encode.
func (e *encoder) text() []byte { return bytes.TrimSuffix(e.line.Bytes(), []byte{'\n'}) }

func (e *encoder) flush() error {
	if err := e.to.Flush(); err != nil {
		return fmt.Errorf("write export: %w", err)
	}
	return nil
}
