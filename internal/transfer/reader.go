package transfer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// longestLine bounds the memory that a file can ask for. No database holds a longer value.
const longestLine = 1 << 30

// Reader reads an export. Its errors are ErrInvalid and name the line, or those of the stream.
type Reader struct {
	lines  *bufio.Scanner
	number int
	last   holdfast.TaskID
	sums   *counter
	totals Totals // from the last line
	done   bool
}

// NewReader returns a Reader of a stream.
func NewReader(from io.Reader) *Reader {
	r := &Reader{lines: bufio.NewScanner(from), sums: newCounter()}
	r.lines.Buffer(nil, longestLine)
	return r
}

// Next returns the next record. At the end it returns io.EOF if the stream is whole: all lines are there, as they were written.
func (r *Reader) Next() (store.Record, error) {
	if r.done {
		return store.Record{}, io.EOF
	}
	if r.number == 0 {
		if err := r.header(); err != nil {
			return store.Record{}, err
		}
	}
	l, text, err := r.line()
	switch {
	case err != nil:
		return store.Record{}, err
	case l.End != nil:
		return store.Record{}, r.end(*l.End)
	case l.Task == nil:
		return store.Record{}, r.wrong(invalid("it is neither a task nor the end of the export"))
	}
	if err := l.Task.check(); err != nil {
		return store.Record{}, r.wrong(err)
	}
	if l.Task.ID <= r.last {
		return store.Record{}, r.wrong(invalid("task %s follows task %s; the ids of an export grow", l.Task.ID, r.last))
	}
	r.last = l.Task.ID
	r.sums.add(l.Task, text)
	return l.Task.record(), nil
}

// Totals returns what the last line says, after Next has returned io.EOF.
func (r *Reader) Totals() Totals { return r.totals }

// line reads a line. The text is good until the next call.
func (r *Reader) line() (l line, text []byte, err error) {
	r.number++
	if !r.lines.Scan() {
		switch err := r.lines.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			return l, nil, r.wrong(invalid("it has more than %d bytes", longestLine))
		case err != nil:
			return l, nil, fmt.Errorf("read an export: line %d: %w", r.number, err)
		case r.number == 1:
			return l, nil, exportAgain(fmt.Errorf("%w: the export is empty: it was not written by an export, or the export failed", holdfast.ErrInvalid))
		}
		return l, nil, exportAgain(r.wrong(invalid("the export ends without its last line: it was cut off, or the export failed")))
	}
	text = r.lines.Bytes()
	if !utf8.Valid(text) { // which the decoder would mend in silence
		return l, nil, r.wrong(invalid("it is not valid UTF-8"))
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return l, nil, r.wrong(fmt.Errorf("%w: not a line of an export: %w", holdfast.ErrInvalid, err))
	}
	return l, text, nil
}

func (r *Reader) header() error {
	l, _, err := r.line()
	switch {
	case err != nil:
		return err
	case l.Header == nil || l.Header.Format != format:
		return r.wrong(invalid("this is not an export of holdfast, which begins with a header"))
	case l.Header.Version != version:
		return r.wrong(invalid("the export has version %d, this build reads version %d; import it with the release that wrote it, or a newer one", l.Header.Version, version))
	}
	return nil
}

// exportAgain is an error of an export that is not complete.
func exportAgain(err error) error {
	return holdfast.WithHint(err, holdfast.Hint{Kind: holdfast.HintExportAgain})
}

// end compares what was read with what was written. It returns io.EOF.
func (r *Reader) end(totals Totals) error {
	if differ := totals.differences(r.sums.totals()); differ != "" {
		return exportAgain(r.wrong(invalid("the export is not what was written; there are %s", differ)))
	}
	if totals.LastID < r.last {
		return r.wrong(invalid("last_id is %d, less than the id %s of a task", totals.LastID, r.last))
	}
	for r.lines.Scan() {
		r.number++
		if len(bytes.TrimSpace(r.lines.Bytes())) > 0 {
			return r.wrong(invalid("something follows the end of the export"))
		}
	}
	if err := r.lines.Err(); err != nil {
		return fmt.Errorf("read an export: line %d: %w", r.number, err)
	}
	r.totals, r.done = totals, true
	return io.EOF
}

func (r *Reader) wrong(err error) error { return fmt.Errorf("line %d: %w", r.number, err) }
