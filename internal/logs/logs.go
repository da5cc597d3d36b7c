// Package logs holds the rules about loggers: they are passed in, none means silence, and a message that repeats does
// not fill the log.
package logs

import (
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

const (
	// interval is how often a message that repeats appears.
	interval = time.Second
	// maxKinds bounds the memory for kinds of messages. Lines of further kinds appear without a limit.
	maxKinds = 10_000
	// leftOutKey is the field with the number of lines that were left out.
	leftOutKey = "left_out"
)

// Limited returns a logger that passes to log what it is given, but a message that repeats at most once a second; the field
// left_out counts the lines of its kind that did not appear since the one before. The first line of each kind appears at
// once. If the repetition ends, its last line appears with a later line of any kind, or with Flush.
//
// Lines are of one kind if they have the same level, message, fields and cause of an error. Numbers in them do not count,
// so the same trouble of a thousand tasks is one kind.
//
// A logger that is limited already is returned as it is, so that all that share it share one limit. If log is nil, the
// logger writes nothing.
func Limited(log logrus.FieldLogger) logrus.FieldLogger {
	if log == nil {
		silent := logrus.New()
		silent.SetOutput(io.Discard)
		silent.SetLevel(logrus.PanicLevel)
		return silent
	}
	return limited(log, time.Now)
}

func limited(log logrus.FieldLogger, now func() time.Time) logrus.FieldLogger {
	if limitOf(log) != nil {
		return log
	}
	to := log.WithFields(nil)
	l := logrus.New()
	l.SetOutput(io.Discard)
	l.SetFormatter(nothing{})
	l.SetLevel(logrus.TraceLevel) // the level of log decides, which may change
	l.SetReportCaller(to.Logger.ReportCaller)
	l.AddHook(&limit{to: to, now: now, kinds: make(map[string]*kind)})
	return l
}

// Flush passes on the last of the lines that a limited logger has left out so far, so that nothing is missing at the end of
// a program.
func Flush(log logrus.FieldLogger) {
	if l := limitOf(log); l != nil {
		l.pass(l.overdue(true, ""))
	}
}

func limitOf(log logrus.FieldLogger) *limit {
	for _, hook := range log.WithFields(nil).Logger.Hooks[logrus.PanicLevel] {
		if l, ok := hook.(*limit); ok {
			return l
		}
	}
	return nil
}

// nothing formats what nobody reads: the hook has passed it on.
type nothing struct{}

// Format implements logrus.Formatter.
func (nothing) Format(*logrus.Entry) ([]byte, error) { return nil, nil }

// limit is the hook that sees every line.
type limit struct {
	to  *logrus.Entry
	now func() time.Time

	mu    sync.Mutex
	kinds map[string]*kind
	swept time.Time // when all kinds were looked at
}

// kind is what is known of the lines of one kind.
type kind struct {
	shown   time.Time // when one appeared
	last    line      // of those that did not appear since
	leftOut int       // how many those are
}

// line is a line to pass on.
type line struct {
	logrus.Entry
	leftOut int // lines of its kind before it
}

// Levels implements logrus.Hook.
func (l *limit) Levels() []logrus.Level { return logrus.AllLevels }

// Fire implements logrus.Hook.
func (l *limit) Fire(entry *logrus.Entry) error {
	if !l.to.Logger.IsLevelEnabled(entry.Level) {
		return nil
	}
	name := nameOf(entry)
	lines := l.overdue(false, name)
	if given := (line{Entry: *entry}); l.shows(name, &given) {
		lines = append(lines, given)
	}
	l.pass(lines)
	return nil
}

// shows reports whether a line of a kind appears now, and counts it if it does not.
func (l *limit) shows(name string, given *line) bool {
	if given.Level <= logrus.FatalLevel {
		return true
	}
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kinds[name]
	switch {
	case k == nil && len(l.kinds) >= maxKinds:
		return true
	case k == nil:
		l.kinds[name] = &kind{shown: now}
		return true
	case now.Sub(k.shown) >= interval:
		given.leftOut = k.leftOut
		*k = kind{shown: now}
		return true
	}
	given.Data = maps.Clone(given.Data)
	k.last, k.leftOut = *given, k.leftOut+1
	return false
}

// overdue returns the last line of each kind but one, if lines of that kind were left out and none appeared for an interval; with all,
// whenever one appeared. It forgets the kinds that do not repeat any more.
func (l *limit) overdue(all bool, but string) []line {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !all && now.Sub(l.swept) < interval {
		return nil
	}
	l.swept = now
	var lines []line
	for name, k := range l.kinds {
		switch {
		case name == but || !all && now.Sub(k.shown) < interval:
		case k.leftOut == 0:
			delete(l.kinds, name)
		default:
			k.last.leftOut = k.leftOut - 1
			lines = append(lines, k.last)
			*k = kind{shown: now}
		}
	}
	slices.SortFunc(lines, func(a, b line) int { return a.Time.Compare(b.Time) })
	return lines
}

// pass hands lines on. Not under the lock: a hook of the other logger may log.
func (l *limit) pass(lines []line) {
	for _, given := range lines {
		entry := l.to.WithTime(given.Time).WithFields(given.Data)
		if given.leftOut > 0 {
			entry = entry.WithField(leftOutKey, given.leftOut)
		}
		if given.Context != nil {
			entry.Context = given.Context
		}
		entry.Caller = given.Caller
		entry.Log(given.Level, given.Message)
	}
}

var digits = regexp.MustCompile(`[0-9]+`)

// nameOf names the kind of a line.
func nameOf(entry *logrus.Entry) string {
	var name strings.Builder
	fmt.Fprintf(&name, "%d\x00%s", entry.Level, entry.Message)
	for _, key := range slices.Sorted(maps.Keys(entry.Data)) {
		value := entry.Data[key]
		switch v := value.(type) {
		case error:
			// The cause stands last. What comes before it tells where it was met, often with an address and its port.
			text := v.Error()
			value = digits.ReplaceAllString(text[strings.LastIndex(text, ": ")+1:], "#")
		case time.Time:
			continue
		default:
			switch reflect.ValueOf(value).Kind() {
			case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Float32, reflect.Float64,
				reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
				continue // ids, counts and durations
			}
		}
		fmt.Fprintf(&name, "\x00%s=%v", key, value)
	}
	return name.String()
}
