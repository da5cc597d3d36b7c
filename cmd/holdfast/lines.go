package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/holdfastq/holdfast"
)

// lineReader reads lines of bounded length, however long they really are.
type lineReader struct {
	from  *bufio.Reader
	limit int // bytes
	read  int64
}

// errLong says that a line was longer than the limit. The reader stands at the next one.
var errLong = errors.New("the line is too long")

// next returns a line without the space around it; io.EOF after the last one. The bytes are the
// caller's to keep.
func (r *lineReader) next() ([]byte, error) {
	var line []byte
	long, begun := false, false
	for {
		part, err := r.from.ReadSlice('\n')
		r.read += int64(len(part))
		begun = begun || len(part) > 0
		if len(line)+len(part) > r.limit+len("\r\n") {
			long, line = true, nil
		}
		if !long {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && !begun:
			return nil, io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			return nil, err
		case long:
			return nil, errLong
		}
		return bytes.TrimSpace(line), nil
	}
}

// waits reports whether the next call may have to wait for whoever writes.
func (r *lineReader) waits() bool { return r.from.Buffered() == 0 }

// taskLine is one line of --jsonl.
type taskLine struct {
	Type        string          `json:"type"`
	Payload     json.RawMessage `json:"payload"`
	Lane        string          `json:"lane"`
	Delay       string          `json:"delay"`
	At          string          `json:"at"`
	MaxAttempts *int            `json:"max_attempts"`
	Unique      string          `json:"unique"`
}

// parseLine reads one line. What it does not say is taken from defaults. The error's text is for
// the person who wrote the line.
func parseLine(line []byte, defaults holdfast.NewTask) (holdfast.NewTask, error) {
	if !utf8.Valid(line) { // which the decoder would mend in silence
		return holdfast.NewTask{}, errors.New("not valid UTF-8")
	}
	var l taskLine
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&l); err != nil {
		return holdfast.NewTask{}, explainJSON(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return holdfast.NewTask{}, errors.New("there is something after the JSON object")
	}
	if line[0] != '{' { // null decodes into anything
		return holdfast.NewTask{}, errors.New("not a JSON object")
	}
	task := defaults
	if l.Type != "" {
		task.Type = l.Type
	}
	if l.Payload != nil {
		task.Payload = l.Payload
	}
	if l.Lane != "" {
		task.Lane = l.Lane
	}
	if l.MaxAttempts != nil {
		if task.MaxAttempts = *l.MaxAttempts; task.MaxAttempts < 1 {
			return task, fmt.Errorf("max_attempts %d must be at least 1", task.MaxAttempts)
		}
	}
	if l.Delay != "" || l.At != "" {
		var err error
		if task.Delay, task.At, err = when(l.Delay, l.At); err != nil {
			return task, err
		}
	}
	task.Unique = l.Unique
	return task, nil
}

// explainJSON says what is wrong without words of Go.
func explainJSON(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if wrong.Field == "" {
			return fmt.Errorf("a line is a JSON object, not %s", article(wrong.Value))
		}
		kind := "a string"
		if wrong.Field == "max_attempts" {
			kind = "a whole number"
		}
		return fmt.Errorf("%s must be %s, not %s", wrong.Field, kind, article(wrong.Value))
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the JSON ends too early")
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	if key, ok := strings.CutPrefix(text, "unknown field "); ok {
		return fmt.Errorf("unknown key %s", key)
	}
	return fmt.Errorf("not valid JSON: %s", text)
}

// article puts a or an before the name of a kind of JSON value.
func article(kind string) string {
	if kind == "array" || kind == "object" {
		return "an " + kind
	}
	return "a " + kind
}
