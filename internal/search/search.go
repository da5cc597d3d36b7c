// Package search parses the text form of a filter. Every surface uses it, so that a search can be copied from one to
// another.
//
// A search is a list of terms between spaces, such as:
//
//	state:dead type:http error:"connection refused" attempt:>3 since:2h
//
// A task matches if it matches all terms. A term is a field and a value; [Fields] lists the fields. A value with
// spaces or quotes is in double quotes, in which a backslash precedes a quote or a backslash. A value without a field is
// a part of the last error; if it contains a colon, it needs quotes. The order of the terms does not matter, and each
// field may appear once.
package search

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// SyntaxError is an error in a search.
type SyntaxError struct {
	Text   string // the search
	Offset int    // of the error in Text, in bytes; at most len(Text)
	Reason string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("character %d: %s", utf8.RuneCountInString(e.Text[:e.Offset])+1, e.Reason)
}

// Unwrap returns holdfast.ErrInvalid.
func (e *SyntaxError) Unwrap() error { return holdfast.ErrInvalid }

// Field describes a field for help texts.
type Field struct {
	Name    string
	Meaning string
	set     func(f *store.Filter, value string, now time.Time) error
}

// Fields returns all fields, in the order of help texts.
func Fields() []Field { return slices.Clone(fields) }

var fields = []Field{
	{"state", "one of the states, separated by commas: " + strings.Join(StateNames(), ", "), setStates},
	{"type", "the task type", text(func(f *store.Filter) *string { return &f.Type })},
	{"queue", "the queue", text(func(f *store.Filter) *string { return &f.Queue })},
	{"unique", "the unique key", text(func(f *store.Filter) *string { return &f.Unique })},
	{"error", "a part of the last error; the case does not matter", text(func(f *store.Filter) *string { return &f.Error })},
	{"attempt", "the number of the attempt: 3, >3, >=3, <3 or <=3", setAttempt},
	{"since", "finished, or else created, at or after a time: 2h (ago), 2030-01-31 or 2030-01-31T09:00:00Z", setSince},
	{"until", "finished, or else created, before a time", setUntil},
	{"group", "dead, in the group with this fingerprint", setGroup},
	{"class", "dead, of an error of this class", text(func(f *store.Filter) *string { return &f.Class })},
	{"host", "dead, after a delivery to this host, with its port if it has one", text(func(f *store.Filter) *string { return &f.Host })},
	{"status", "dead, after this status of a delivery: 100 to 599", setStatus},
}

// Parse parses a search. Times relative to now are converted. An empty search selects all tasks. The error is a
// *SyntaxError.
func Parse(text string, now time.Time) (store.Filter, error) {
	b := Builder{Now: now}
	if err := b.Parse(text); err != nil {
		return store.Filter{}, err
	}
	return b.Filter, nil
}

// Builder makes a filter of searches and single fields. Each field may be set once.
type Builder struct {
	Filter store.Filter
	Now    time.Time // for times that are given as durations
	seen   []string
}

// Parse adds the terms of a search. The error is a *SyntaxError; after it the filter is not complete.
func (b *Builder) Parse(text string) error {
	p := parser{text: text}
	for {
		term, more, err := p.next()
		if err != nil || !more {
			return err
		}
		name := term.field
		if name == "" {
			name = "error"
		}
		switch {
		case !slices.ContainsFunc(fields, func(f Field) bool { return f.Name == name }):
			return p.errorAt(term.at, "unknown field %q; use %s", name, fieldNames())
		case slices.Contains(b.seen, name):
			return p.errorAt(term.at, "the field %s appears twice", name)
		}
		if err := b.Set(name, term.value); err != nil {
			return p.errorAt(term.valueAt, "%s", err)
		}
	}
}

// Set adds the condition for one field, whose name is one of [Fields].
func (b *Builder) Set(field, value string) error {
	if slices.Contains(b.seen, field) {
		return fmt.Errorf("the field %s appears twice", field)
	}
	b.seen = append(b.seen, field)
	if value == "" {
		return fmt.Errorf("the field %s has no value", field)
	}
	i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == field })
	if err := fields[i].set(&b.Filter, value, b.Now); err != nil {
		return err
	}
	if f := &b.Filter; !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return errors.New("since must be before until")
	}
	return nil
}

// Has reports whether a condition for the field was added.
func (b *Builder) Has(field string) bool { return slices.Contains(b.seen, field) }

// term is one term of a search. at and valueAt are offsets in bytes.
type term struct {
	field, value string
	at, valueAt  int
}

type parser struct {
	text   string
	offset int
}

func (p *parser) errorAt(offset int, format string, args ...any) error {
	return &SyntaxError{p.text, offset, fmt.Sprintf(format, args...)}
}

// next returns the next term. more is false at the end.
func (p *parser) next() (t term, more bool, err error) {
	p.offset += len(p.text[p.offset:]) - len(strings.TrimLeftFunc(p.text[p.offset:], unicode.IsSpace))
	if p.offset == len(p.text) {
		return term{}, false, nil
	}
	t.at = p.offset
	if p.text[p.offset] != '"' {
		word := p.text[p.offset:p.wordEnd()]
		if field, _, found := strings.Cut(word, ":"); found {
			t.field = field
			p.offset += len(field) + 1
			if field == "" {
				return term{}, false, p.errorAt(t.at, "a field is missing before the colon")
			}
		}
	}
	t.valueAt = p.offset
	t.value, err = p.value()
	return t, true, err
}

// wordEnd returns the offset of the next space, or of the end.
func (p *parser) wordEnd() int {
	if n := strings.IndexFunc(p.text[p.offset:], unicode.IsSpace); n >= 0 {
		return p.offset + n
	}
	return len(p.text)
}

// value parses a value with or without quotes.
func (p *parser) value() (string, error) {
	began := p.offset
	if p.offset == len(p.text) || p.text[p.offset] != '"' {
		p.offset = p.wordEnd()
		word := p.text[began:p.offset]
		if at := strings.IndexByte(word, '"'); at >= 0 {
			return "", p.errorAt(began+at, `a value with a quote must be in quotes, and a backslash must precede the quote`)
		}
		return word, nil
	}
	var value strings.Builder
	for p.offset++; p.offset < len(p.text); p.offset++ {
		switch c := p.text[p.offset]; c {
		case '"':
			p.offset++
			if p.offset != len(p.text) && p.wordEnd() != p.offset {
				return "", p.errorAt(p.offset, "a space is missing after the quote")
			}
			return value.String(), nil
		case '\\':
			p.offset++
			if p.offset == len(p.text) || !strings.ContainsRune(`"\`, rune(p.text[p.offset])) {
				return "", p.errorAt(p.offset-1, `a backslash must precede a quote or a backslash`)
			}
			value.WriteByte(p.text[p.offset])
		default:
			value.WriteByte(c)
		}
	}
	return "", p.errorAt(began, "the closing quote is missing")
}

func fieldNames() string {
	var names []string
	for _, f := range fields {
		names = append(names, f.Name)
	}
	return strings.Join(names, ", ")
}

// StateNames returns the names of all states, in the order of lists.
func StateNames() []string {
	var names []string
	for _, state := range holdfast.States() {
		names = append(names, string(state))
	}
	return names
}

// text returns the function that sets a field that may be any text.
func text(field func(*store.Filter) *string) func(*store.Filter, string, time.Time) error {
	return func(f *store.Filter, value string, _ time.Time) error {
		*field(f) = value
		return nil
	}
}

func setStates(f *store.Filter, value string, _ time.Time) error {
	for name := range strings.SplitSeq(value, ",") {
		state := holdfast.State(strings.TrimSpace(name))
		if !state.Valid() {
			return fmt.Errorf("unknown state %q; use %s", name, strings.Join(StateNames(), ", "))
		}
		if !slices.Contains(f.States, state) {
			f.States = append(f.States, state)
		}
	}
	return nil
}

// maxAttempt is the highest number of an attempt.
const maxAttempt = 1<<31 - 1

func setAttempt(f *store.Filter, value string, _ time.Time) error {
	digits := strings.TrimLeft(value, "<>=")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 0 || n > maxAttempt-1 {
		return fmt.Errorf("attempt %q is not a number like 3, >3, >=3, <3 or <=3", value)
	}
	switch strings.TrimSuffix(value, digits) {
	case "", "=":
		if n == 0 {
			return errors.New("the first attempt is 1")
		}
		f.MinAttempt, f.MaxAttempt = n, n
	case ">":
		f.MinAttempt = n + 1
	case ">=":
		f.MinAttempt = n
	case "<=", "<":
		if f.MaxAttempt = n; value[1] != '=' {
			f.MaxAttempt--
		}
		if f.MaxAttempt < 1 {
			return errors.New("the first attempt is 1")
		}
	default:
		return fmt.Errorf("attempt %q is not a number like 3, >3, >=3, <3 or <=3", value)
	}
	return nil
}

func setGroup(f *store.Filter, value string, _ time.Time) error {
	if len(value) != 16 || strings.Trim(value, "0123456789abcdef") != "" {
		return fmt.Errorf("group %q is not a fingerprint of 16 hexadecimal digits", value)
	}
	f.Fingerprint = value
	return nil
}

func setStatus(f *store.Filter, value string, _ time.Time) error {
	n, err := strconv.Atoi(value)
	if err != nil || n < 100 || n > 599 {
		return fmt.Errorf("status %q is not a number from 100 to 599", value)
	}
	f.Status = n
	return nil
}

func setSince(f *store.Filter, value string, now time.Time) (err error) {
	f.Since, err = Past(value, now)
	return err
}

func setUntil(f *store.Filter, value string, now time.Time) (err error) {
	f.Until, err = Past(value, now)
	return err
}

// Past parses a time like [Time], or a duration before now.
func Past(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil {
		if d < 0 {
			return time.Time{}, fmt.Errorf("%s is negative", text)
		}
		return now.Add(-d), nil
	}
	at, err := Time(text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w, or a duration like 2h", err)
	}
	return at, nil
}

// Time parses a date, a date with a time of day, or an RFC 3339 time. Without a zone, the time is local.
func Time(text string) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02 15:04", time.DateTime, "2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time like 2030-01-31, 2030-01-31 09:00 or 2030-01-31T09:00:00Z", text)
}
