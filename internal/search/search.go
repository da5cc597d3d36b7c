// Package search parses the text form of a filter. Every surface uses it, so that a search can be copied from one to
// another.
//
// A search is a list of terms between spaces, such as:
//
//	state:dead type:http error:"connection refused" attempt:>3 since:2h
//
// A task matches if it matches all terms. A term is a field and a value; [Fields] lists the fields. A value with spaces
// or quotes is in double quotes, in which a backslash precedes a quote or a backslash. A number without a field is an id, and several with commas are a list of ids.
// Any other value without a field is a part of the last error; if it contains a colon or is a number, it needs quotes.
// The order of the terms does not matter. Each field may appear once, except -id, tag and payload. The field -id leaves
// tasks out: "state:dead -id:42,43".
//
// The field payload has a path, whose steps are the keys of objects and the indexes of arrays:
//
//	payload.order.id:42 payload.items.0."odd key":"a b"
//
// A step with characters other than letters, digits, _, - and $ is in double quotes. A value in quotes is equal to a
// string; a value without quotes may also be a number, true, false or null.
package search

import (
	"errors"
	"fmt"
	"math"
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
	Offset int    // offset of the error in Text, in bytes; at most len(Text)
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
	many    bool // the field may appear more than once
	set     func(f *store.Filter, value string, now time.Time) error
}

// Fields returns all fields, in the order of help texts.
func Fields() []Field { return slices.Clone(fields) }

// payload is the field that has a path, and notID the field that leaves tasks out.
const (
	payload = "payload"
	notID   = "-id"
)

const (
	maxTerms = 16   // in a search, with the field payload
	maxSteps = 32   // in a path
	maxIDs   = 1000 // in a list, and to leave out
)

var fields = []Field{
	{"state", "one of the states, separated by commas: " + strings.Join(StateNames(), ", "), false, setStates},
	{"type", "the task type", false, text(func(f *store.Filter) *string { return &f.Type })},
	{"queue", "the queue", false, setQueue},
	{"priority", "one of the priorities, separated by commas: low, normal, high, critical", false, setPriorities},
	{"id", "the id: 42, a list such as 42,43, a range such as 100..200, or >100, >=100, <100 or <=100", false, setID},
	{notID, "leaves tasks out: 42, or a list such as 42,43; at most 1000 ids in a search", true, setNotIDs},
	{"unique", "the unique key", false, text(func(f *store.Filter) *string { return &f.Unique })},
	{"key", "the key, such as a tenant", false, text(func(f *store.Filter) *string { return &f.Key })},
	{"topic", "the topic", false, text(func(f *store.Filter) *string { return &f.Topic })},
	{"batch", "the id of the batch", false, setBatch},
	{"operation", "the id of an operation that has changed the task; with state:dead, those that failed again", false, setOperation},
	{"worker", "the id of the worker that runs the task", false, setWorker},
	{"error", "a part of the last error; the case does not matter", false, text(func(f *store.Filter) *string { return &f.Error })},
	{"attempt", "the number of the attempt: 3, >3, >=3, <3 or <=3", false, setAttempt},
	{"since", "finished, or else created, at or after a time: 2h (ago), 2030-01-31 or 2030-01-31T09:00:00Z", false, setSince},
	{"until", "finished, or else created, before a time", false, setUntil},
	{"group", "dead, in the group with this fingerprint, or with its first 4 or more digits", false, setGroup},
	{"class", "dead, of an error of this class", false, text(func(f *store.Filter) *string { return &f.Class })},
	{"host", "dead, after a delivery to this host, with its port if it has one", false, text(func(f *store.Filter) *string { return &f.Host })},
	{"status", "dead, after this status of a delivery: 100 to 599", false, setStatus},
	{"tag", "a tag of the task; repeat the field for more tags", true, setTag},
	{payload, "a value in the payload: payload.order.id:42 or payload.items.0.\"odd key\":\"a b\"; scans", true, nil},
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
		i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name })
		switch {
		case name == payload:
			if err := b.payload(&p, term); err != nil {
				return err
			}
			continue
		case i < 0:
			return p.errorAt(term.at, "unknown field %q; use %s", name, fieldNames())
		case b.Has(name) && !fields[i].many:
			return p.errorAt(term.at, "the field %s appears twice", name)
		}
		if err := b.Set(name, term.value); err != nil {
			return p.errorAt(term.valueAt, "%s", err)
		}
	}
}

// Set adds the condition for one field, whose name is one of [Fields].
func (b *Builder) Set(field, value string) error {
	i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == field })
	if fields[i].set == nil {
		return fmt.Errorf("the field %s needs a path; use Parse", field)
	}
	if b.Has(field) && !fields[i].many {
		return fmt.Errorf("the field %s appears twice", field)
	}
	b.seen = append(b.seen, field)
	if value == "" {
		return fmt.Errorf("the field %s has no value", field)
	}
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

// payload adds the condition for a value in the payload.
func (b *Builder) payload(p *parser, t term) error {
	switch {
	case len(t.path) == 0:
		return p.errorAt(t.at, "the field payload needs a path, such as payload.order.id:42")
	case len(b.Filter.Payload) == maxTerms:
		return p.errorAt(t.at, "a search has at most %d fields payload", maxTerms)
	case t.value == "" && !t.quoted:
		return p.errorAt(t.valueAt, "the field payload has no value")
	}
	b.seen = append(b.seen, payload)
	b.Filter.Payload = append(b.Filter.Payload, store.PayloadTerm{Path: t.path, Value: t.value, Text: t.quoted})
	return nil
}

// Without returns a search without the terms of some fields. It returns a text that is not a search as it is.
func Without(text string, names ...string) string {
	p := parser{text: text}
	var rest []string
	for {
		t, more, err := p.next()
		switch {
		case err != nil:
			return text
		case !more:
			return strings.Join(rest, " ")
		case !slices.Contains(names, t.field):
			rest = append(rest, text[t.at:p.offset])
		}
	}
}

// With returns a search in which a field has another value, which needs no quotes. It returns a text that is not a
// search, or that does not have the field, as it is.
func With(text, name, value string) string {
	p := parser{text: text}
	for {
		t, more, err := p.next()
		switch {
		case err != nil || !more:
			return text
		case t.field == name:
			return text[:t.valueAt] + value + text[p.offset:]
		}
	}
}

// term is one term of a search. at and valueAt are offsets in bytes.
type term struct {
	field, value string
	path         []string // path of the field payload
	quoted       bool     // the value is in quotes
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
		field, _, found := strings.Cut(word, ":")
		switch {
		case strings.HasPrefix(word, payload+"."):
			t.field = payload
			p.offset += len(payload)
			if t.path, err = p.path(); err != nil {
				return term{}, false, err
			}
		case found:
			t.field = field
			p.offset += len(field) + 1
			if field == "" {
				return term{}, false, p.errorAt(t.at, "a field is missing before the colon")
			}
		}
	}
	t.valueAt = p.offset
	t.quoted = p.offset < len(p.text) && p.text[p.offset] == '"'
	if t.value, err = p.value(); err == nil && t.field == "" && !t.quoted && areIDs(t.value) {
		t.field = "id"
	}
	return t, true, err
}

// areIDs reports whether a value without a field is an id, or a list of ids.
func areIDs(text string) bool {
	for part := range strings.SplitSeq(text, ",") {
		if _, err := holdfast.ParseTaskID(part); err != nil || part[0] == '+' {
			return false
		}
	}
	return true
}

// path parses the steps ".key" up to the colon, which it skips.
func (p *parser) path() ([]string, error) {
	var path []string
	for p.offset < len(p.text) && p.text[p.offset] == '.' {
		p.offset++
		began := p.offset
		var step string
		if p.offset < len(p.text) && p.text[p.offset] == '"' {
			var err error
			if step, err = p.quoted(); err != nil {
				return nil, err
			}
		} else {
			p.offset += len(p.text[p.offset:]) - len(strings.TrimLeftFunc(p.text[p.offset:], inStep))
			if step = p.text[began:p.offset]; step == "" {
				return nil, p.errorAt(began, `a key is missing; a key with other characters than letters, digits, _, - and $ must be in quotes`)
			}
		}
		if path = append(path, step); len(path) > maxSteps {
			return nil, p.errorAt(began, "a path has at most %d keys", maxSteps)
		}
	}
	if p.offset == len(p.text) || p.text[p.offset] != ':' {
		return nil, p.errorAt(p.offset, `a colon and a value are missing; a key with other characters than letters, digits, _, - and $ must be in quotes`)
	}
	p.offset++
	return path, nil
}

// inStep reports whether a key needs no quotes because of the character.
func inStep(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r == '-' || r == '$'
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
	value, err := p.quoted()
	if err == nil && p.offset != len(p.text) && p.wordEnd() != p.offset {
		err = p.errorAt(p.offset, "a space is missing after the quote")
	}
	return value, err
}

// quoted parses a text in quotes.
func (p *parser) quoted() (string, error) {
	began := p.offset
	var value strings.Builder
	for p.offset++; p.offset < len(p.text); p.offset++ {
		switch c := p.text[p.offset]; c {
		case '"':
			p.offset++
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

func setBatch(f *store.Filter, value string, _ time.Time) (err error) {
	if f.Batch, err = holdfast.ParseBatchID(value); err != nil {
		return fmt.Errorf("batch %.60q is not an id; use a number like 42", value)
	}
	return nil
}

func setOperation(f *store.Filter, value string, _ time.Time) error {
	if err := f.Operation.UnmarshalText([]byte(value)); err != nil || f.Operation == 0 {
		return fmt.Errorf("operation %.60q is not an id; use a number like 42", value)
	}
	return nil
}

func setWorker(f *store.Filter, value string, _ time.Time) error {
	if err := f.Worker.UnmarshalText([]byte(value)); err != nil || f.Worker == 0 {
		return fmt.Errorf("worker %.60q is not an id; use a number like 42", value)
	}
	return nil
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

func setQueue(f *store.Filter, value string, _ time.Time) error {
	if queue, p := holdfast.SplitSubqueue(value); p != holdfast.PriorityNormal {
		return fmt.Errorf("%q is not a queue; use queue:%s priority:%s", value, queue, p)
	}
	f.Queue = value
	return nil
}

func setPriorities(f *store.Filter, value string, _ time.Time) error {
	for name := range strings.SplitSeq(value, ",") {
		priority, err := holdfast.ParsePriority(strings.TrimSpace(name))
		if err != nil {
			return errors.New(strings.TrimPrefix(err.Error(), holdfast.ErrInvalid.Error()+": "))
		}
		if !slices.Contains(f.Priorities, priority) {
			f.Priorities = append(f.Priorities, priority)
		}
	}
	return nil
}

func setTag(f *store.Filter, value string, _ time.Time) error {
	if err := holdfast.CheckTag(value); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), holdfast.ErrInvalid.Error()+": "))
	}
	if len(f.Tags) == holdfast.MaxTags {
		return fmt.Errorf("a task has at most %d tags", holdfast.MaxTags)
	}
	if !slices.Contains(f.Tags, value) {
		f.Tags = append(f.Tags, value)
	}
	return nil
}

func setID(f *store.Filter, value string, _ time.Time) error {
	digits := strings.TrimLeft(value, "<>=")
	operator := strings.TrimSuffix(value, digits)
	low, high, isRange := strings.Cut(value, "..")
	if isRange {
		digits, operator = low, ">="
	}
	if operator == "" || operator == "=" {
		return setIDs(f, digits)
	}
	id, err := holdfast.ParseTaskID(digits)
	if err == nil && isRange {
		f.MaxID, err = holdfast.ParseTaskID(high)
	}
	switch {
	case err != nil || operator == "<" && id == 1 || isRange && id > f.MaxID || operator == ">" && id == math.MaxInt64:
		return fmt.Errorf("id %.60q selects no tasks; use 42, 42,43, 100..200, >100, >=100, <100 or <=100", value)
	case operator == ">":
		f.MinID = id + 1
	case operator == ">=":
		f.MinID = id
	case operator == "<":
		f.MaxID = id - 1
	case operator == "<=":
		f.MaxID = id
	default:
		return fmt.Errorf("id %.60q is not an id, a list or a range; use 42, 42,43, 100..200, >100, >=100, <100 or <=100", value)
	}
	return nil
}

func setIDs(f *store.Filter, list string) error {
	for text := range strings.SplitSeq(list, ",") {
		id, err := holdfast.ParseTaskID(strings.TrimSpace(text))
		if err != nil {
			return fmt.Errorf("id %.60q is not an id, a list or a range; use 42, 42,43, 100..200, >100, >=100, <100 or <=100", list)
		}
		if f.IDs = append(f.IDs, id); len(f.IDs) > maxIDs {
			return fmt.Errorf("a search has at most %d ids", maxIDs)
		}
	}
	return nil
}

func setNotIDs(f *store.Filter, list string, _ time.Time) error {
	for text := range strings.SplitSeq(list, ",") {
		id, err := holdfast.ParseTaskID(strings.TrimSpace(text))
		if err != nil {
			return fmt.Errorf("%.60q is not an id or a list of ids; use %s:42 or %s:42,43", list, notID, notID)
		}
		if f.NotIDs = append(f.NotIDs, id); len(f.NotIDs) > maxIDs {
			return fmt.Errorf("a search leaves out at most %d ids; narrow the search with other fields instead", maxIDs)
		}
	}
	return nil
}

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
	digits, _, err := holdfast.ParseFingerprint(value)
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), holdfast.ErrInvalid.Error()+": "))
	}
	f.Fingerprint = digits
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
		if d > holdfast.MaxDuration {
			return time.Time{}, fmt.Errorf("%s is longer than ten years", text)
		}
		return now.Add(-d), nil
	}
	at, err := Time(text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w, or a duration like 2h", err)
	}
	return at, nil
}

// Time parses a date, a date with a time of day, or an RFC 3339 time. Without a zone, the time is local; see TimeIn.
func Time(text string) (time.Time, error) { return TimeIn(text, time.Local) }

// TimeIn parses a date, a date with a time of day, or an RFC 3339 time. The former two are times of the zone. If its clock
// is set back, a time can occur twice, and TimeIn returns the first one. If the clock is set forward, a time can be
// missing, and TimeIn returns the time that is as much later: 03:30 for 02:30 on most days with a gap. TimeIn returns an
// error unless the time is in the years from 1970 to 9999.
func TimeIn(text string, zone *time.Location) (time.Time, error) {
	at, err := parseTime(text, zone)
	if err == nil && (at.IsZero() || holdfast.CheckTime("", at) != nil) {
		return time.Time{}, fmt.Errorf("%q is not in the years from 1970 to 9999", text)
	}
	return at, err
}

func parseTime(text string, zone *time.Location) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02 15:04", time.DateTime, "2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if wall, err := time.Parse(layout, text); err == nil {
			return local(wall, zone), nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time like 2030-01-31, 2030-01-31 09:00 or 2030-01-31T09:00:00Z", text)
}

// local returns the time at which the clock of a zone shows the date and the time of day of wall. If there is no such
// time, it returns a later one. Package time may return an earlier one, and a task would start before its time.
func local(wall time.Time, zone *time.Location) time.Time {
	shows := func(at time.Time) bool { return at.Format(time.DateTime) == wall.Format(time.DateTime) }
	at := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), wall.Nanosecond(), zone)
	_, offset := at.Add(-24 * time.Hour).Zone() // before a change of the clock on this day
	before := wall.Add(-time.Duration(offset) * time.Second).In(zone)
	if !shows(before) && shows(at) {
		return at
	}
	return before
}
