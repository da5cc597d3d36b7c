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

// maxLine limits the memory for a line. No database stores a longer value.
const maxLine = 1 << 30

// Reader reads an export. It returns errors of the stream. All other errors wrap holdfast.ErrInvalid and contain the
// line number.
type Reader struct {
	lines  *bufio.Scanner
	number int
	last   holdfast.TaskID
	key    keyLine         // the last one; it is empty before the first
	newest holdfast.TaskID // the highest task of a key
	sums   *counter
	totals Totals // from the last line
	done   bool
	onKey  func(store.KeptKey) error // receives the unique keys, if it is not nil
}

// NewReader returns a Reader of the stream.
func NewReader(from io.Reader) *Reader {
	r := &Reader{lines: bufio.NewScanner(from), sums: newCounter()}
	r.lines.Buffer(nil, maxLine)
	return r
}

// Next returns the next record. At the end it returns io.EOF if the export is complete and its checksums match.
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
	for ; err == nil && l.Key != nil; l, text, err = r.line() {
		if err := r.addKey(l.Key, text); err != nil {
			return store.Record{}, err
		}
	}
	switch {
	case err != nil:
		return store.Record{}, err
	case l.End != nil:
		return store.Record{}, r.end(*l.End)
	case l.Task == nil:
		return store.Record{}, r.atLine(invalidf("not a task or the end of the export"))
	}
	if err := l.Task.check(); err != nil {
		return store.Record{}, r.atLine(err)
	}
	if r.key.Key != "" {
		return store.Record{}, r.atLine(invalidf("task %s follows a unique key, but the keys of an export are after its tasks", l.Task.ID))
	}
	if l.Task.ID <= r.last {
		return store.Record{}, r.atLine(invalidf("task %s follows task %s, but the ids of an export must increase", l.Task.ID, r.last))
	}
	r.last = l.Task.ID
	r.sums.add(l.Task, text)
	return l.Task.record(), nil
}

// addKey reads the line of a unique key.
func (r *Reader) addKey(k *keyLine, text []byte) error {
	if err := k.check(); err != nil {
		return r.atLine(err)
	}
	if k.Key <= r.key.Key {
		return r.atLine(invalidf("the unique key %q follows %q, but the keys of an export must increase", k.Key, r.key.Key))
	}
	r.key, r.newest = *k, max(r.newest, k.Task)
	r.sums.addKey(text)
	if r.onKey == nil {
		return nil
	}
	return r.onKey(k.value())
}

// Totals returns the totals of the last line. They are set after Next has returned io.EOF.
func (r *Reader) Totals() Totals { return r.totals }

// line reads a line. The text is valid until the next call.
func (r *Reader) line() (l line, text []byte, err error) {
	r.number++
	if !r.lines.Scan() {
		switch err := r.lines.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			return l, nil, r.atLine(invalidf("the line has more than %d bytes", maxLine))
		case err != nil:
			return l, nil, fmt.Errorf("read export: line %d: %w", r.number, err)
		case r.number == 1:
			return l, nil, incomplete(fmt.Errorf("%w: the export is empty: the file is not an export, or the export failed", holdfast.ErrInvalid))
		}
		return l, nil, incomplete(r.atLine(invalidf("the export ends without its last line: it was cut off, or the export failed")))
	}
	text = r.lines.Bytes()
	if !utf8.Valid(text) { // the decoder would silently replace invalid bytes
		return l, nil, r.atLine(invalidf("not valid UTF-8"))
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return l, nil, r.atLine(fmt.Errorf("%w: not a line of an export: %w", holdfast.ErrInvalid, err))
	}
	return l, text, nil
}

func (r *Reader) header() error {
	l, _, err := r.line()
	switch {
	case err != nil:
		return err
	case l.Header == nil || l.Header.Format != format:
		return r.atLine(invalidf("not an export of holdfast: the header is missing"))
	case l.Header.Version != version:
		return r.atLine(invalidf("the export has version %d, but this build reads version %d; import it with the release that wrote it, or a newer one", l.Header.Version, version))
	}
	return nil
}

// incomplete adds a hint to the error of an incomplete export: export again.
func incomplete(err error) error {
	return holdfast.WithHint(err, holdfast.Hint{Kind: holdfast.HintExportAgain})
}

// end compares the totals of the last line with the lines that were read. It returns io.EOF if they match.
func (r *Reader) end(totals Totals) error {
	read := r.sums.totals()
	differences := totals.differences(read)
	if differences == "" && totals.Keys != read.Keys {
		differences = "other unique keys"
	}
	if differences != "" {
		return incomplete(r.atLine(invalidf("the export was changed after it was written: %s", differences)))
	}
	if newest := max(r.last, r.newest); totals.LastID < newest {
		return r.atLine(invalidf("last_id is %d, less than the task id %s", totals.LastID, newest))
	}
	for r.lines.Scan() {
		r.number++
		if len(bytes.TrimSpace(r.lines.Bytes())) > 0 {
			return r.atLine(invalidf("unexpected data after the end of the export"))
		}
	}
	if err := r.lines.Err(); err != nil {
		return fmt.Errorf("read export: line %d: %w", r.number, err)
	}
	r.totals, r.done = totals, true
	return io.EOF
}

func (r *Reader) atLine(err error) error { return fmt.Errorf("line %d: %w", r.number, err) }
