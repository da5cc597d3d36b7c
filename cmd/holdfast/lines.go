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

// lineReader reads lines. It skips lines that are longer than the limit, without keeping them in memory.
type lineReader struct {
	from  *bufio.Reader
	limit int   // of a line, in bytes
	read  int64 // bytes read so far
}

// errLong is the error for a line that is longer than the limit. The next call of next returns the following line.
var errLong = errors.New("the line is too long")

// next returns the next line without leading and trailing space. Returns errLong for a line that is longer than the
// limit, and io.EOF after the last line. The caller may keep the bytes.
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

// mayBlock reports whether the next call of next may block until more data arrives.
func (r *lineReader) mayBlock() bool { return r.from.Buffered() == 0 }

// taskLine is one line of --jsonl.
type taskLine struct {
	Type        string          `json:"type"`
	Payload     json.RawMessage `json:"payload"`
	Queue       string          `json:"queue"`
	Delay       string          `json:"delay"`
	At          string          `json:"at"`
	MaxAttempts *int            `json:"max_attempts"`
	Unique      string          `json:"unique"`
}

// parseLine parses one line. Missing keys have the values of defaults. The error text is for the user who wrote the
// line.
func parseLine(line []byte, defaults holdfast.NewTask) (holdfast.NewTask, error) {
	if !utf8.Valid(line) { // the decoder would silently replace invalid bytes
		return holdfast.NewTask{}, errors.New("not valid UTF-8")
	}
	var l taskLine
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&l); err != nil {
		return holdfast.NewTask{}, explainJSON(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return holdfast.NewTask{}, errors.New("unexpected data after the JSON object")
	}
	if line[0] != '{' { // null decodes without an error
		return holdfast.NewTask{}, errors.New("not a JSON object")
	}
	task := defaults
	if l.Type != "" {
		task.Type = l.Type
	}
	if l.Payload != nil {
		task.Payload = l.Payload
	}
	if l.Queue != "" {
		task.Queue = l.Queue
	}
	if l.MaxAttempts != nil {
		if task.MaxAttempts = *l.MaxAttempts; task.MaxAttempts < 1 {
			return task, fmt.Errorf("max_attempts %d must be at least 1", task.MaxAttempts)
		}
	}
	if l.Delay != "" || l.At != "" {
		var err error
		if task.Delay, task.At, err = parseDelayAndTime(l.Delay, l.At); err != nil {
			return task, err
		}
	}
	task.Unique = l.Unique
	return task, nil
}

// explainJSON replaces an error of encoding/json by a text without terms of Go.
func explainJSON(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if wrong.Field == "" {
			return fmt.Errorf("a line must be a JSON object, not %s", article(wrong.Value))
		}
		kind := "a string"
		if wrong.Field == "max_attempts" {
			kind = "a whole number"
		}
		return fmt.Errorf("%s must be %s, not %s", wrong.Field, kind, article(wrong.Value))
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("unexpected end of JSON")
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	if key, ok := strings.CutPrefix(text, "unknown field "); ok {
		return fmt.Errorf("unknown key %s", key)
	}
	return fmt.Errorf("not valid JSON: %s", text)
}

// article returns the name of a JSON type with its indefinite article.
func article(kind string) string {
	if kind == "array" || kind == "object" {
		return "an " + kind
	}
	return "a " + kind
}
