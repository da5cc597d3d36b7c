// Package transfer writes the tasks of a store as lines of JSON, and reads them into another store.
//
// The first line is a header with the version of the format. Each line that follows is a task with its attempts, in the
// order of the ids. The last line says how many tasks there are in each state, with a checksum. Readers ignore fields
// that they do not know; what a reader must know changes the version.
//
// No worker may be live in a store that is exported or imported into: a task that two stores hold must not run in
// either before the caller has decided for one. Both directions take the same memory for a million tasks as for one page.
package transfer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Store is a store that tasks can leave and come to.
type Store interface {
	store.Transfer
	store.Desk
	store.Migrations
	Runs(ctx context.Context, all bool) ([]store.Run, error)
}

// Export writes every task of a store. ErrConflict if a worker is live or a task is running. What was written before an
// error has no last line, and no Reader takes it for an export.
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
		return Totals{}, err
	}
	if err := e.encode(line{End: &totals}); err != nil {
		return Totals{}, err
	}
	return totals, e.flush()
}

// export writes the lines of the tasks.
func export(ctx context.Context, from Store, incarnation string, e *encoder) (Totals, error) {
	if err := quiet(ctx, from); err != nil {
		return Totals{}, err
	}
	c := newCounter()
	last, err := from.Export(ctx, func(record store.Record) error {
		task := lineOf(record, incarnation)
		if err := e.encode(task); err != nil {
			return err
		}
		c.add(task.Task, e.text())
		return ctx.Err()
	})
	if err != nil {
		return Totals{}, err
	}
	totals := c.totals()
	totals.LastID = last
	return totals, quiet(ctx, from) // a worker that began meanwhile may run a task now
}

// quiet returns an ErrConflict if a worker of the store is live.
func quiet(ctx context.Context, s Store) error {
	runs, err := s.Runs(ctx, false)
	if err != nil || len(runs) == 0 {
		return err
	}
	err = fmt.Errorf("%w: worker %s is live, last seen at %s", holdfast.ErrConflict, runs[0].Name, runs[0].RenewedAt.Format(time.RFC3339))
	return holdfast.WithHint(err, holdfast.Hint{Kind: holdfast.HintStopWorkers})
}

// encoder writes lines.
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

func (e *encoder) encode(l line) error {
	e.line.Reset()
	if err := e.json.Encode(l); err != nil {
		return fmt.Errorf("write an export: %w", err)
	}
	if _, err := e.to.Write(e.line.Bytes()); err != nil {
		return fmt.Errorf("write an export: %w", err)
	}
	return nil
}

// text returns the newest line without its line feed, until the next one is written.
func (e *encoder) text() []byte { return bytes.TrimSuffix(e.line.Bytes(), []byte{'\n'}) }

func (e *encoder) flush() error {
	if err := e.to.Flush(); err != nil {
		return fmt.Errorf("write an export: %w", err)
	}
	return nil
}
